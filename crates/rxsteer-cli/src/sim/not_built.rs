//! `rxsteer sim` in a build without the simulator.

/// Fails for any arguments, with a message that says how to build the simulator.
pub(crate) fn command(_args: &args::SimArgs) -> anyhow::Result<crate::Outcome> {
    anyhow::bail!(
        "this build has no simulator. Rebuild with the default features: cargo build --release \
         --package rxsteer-cli"
    )
}

pub(crate) mod args {
    /// Simulate a machine (not in this build)
    #[derive(clap::Args, Debug)]
    #[command(disable_help_flag = true)]
    pub(crate) struct SimArgs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _arguments: Vec<std::ffi::OsString>,
    }
}
