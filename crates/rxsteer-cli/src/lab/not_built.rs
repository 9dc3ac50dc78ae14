//! `rxsteer lab` in a build without it.

/// Fails for any arguments, with a message that says how to build it.
pub(crate) fn command(_args: &args::LabArgs) -> anyhow::Result<crate::Outcome> {
    anyhow::bail!(
        "this build has no experiments. Rebuild with the default features: cargo build --release \
         --package rxsteer-cli"
    )
}

pub(crate) mod args {
    /// Repeat published experiments on this machine (not in this build)
    #[derive(clap::Args, Debug)]
    #[command(disable_help_flag = true)]
    pub(crate) struct LabArgs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _arguments: Vec<std::ffi::OsString>,
    }
}
