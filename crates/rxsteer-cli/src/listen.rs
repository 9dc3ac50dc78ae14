//! `--listen`: serves metrics and a page, for `rxsteer run` itself or for `rxsteer serve`.

use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where metrics and page are served.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Serve metrics and a page, e.g. at 127.0.0.1:9817
    ///
    /// /metrics is for Prometheus, / for a browser, /api/status is JSON. Port 0 picks a free one; the address is printed. An address that other hosts can reach requires
    /// --listen-token-file. It costs nothing while there is no viewer.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, help_heading = "Output")]
    pub(crate) listen: Option<SocketAddr>,

    /// Require viewers to send the token in this file
    ///
    /// They send Authorization: Bearer TOKEN, or a browser opens http://ADDR:PORT/?token=TOKEN once.
    ///
    /// The token has 16 to 256 letters, digits and -._~; make one with: openssl rand -hex 32. No other user may have
    /// permission to read the file. HTTP is not encrypted: if you do not trust the network, listen at 127.0.0.1 and
    /// use a tunnel or a proxy.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) listen_token_file: Option<PathBuf>,
}

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected ADDRESS:PORT, e.g. 127.0.0.1:9817 or [::1]:9817 for this host alone".to_owned()
    })
}

/// The first action of the server's thread, which needs no privileges.
pub(crate) fn unprivileged() -> anyhow::Result<()> {
    #[cfg(feature = "xdp")]
    crate::run::privileges::drop_all(false)?;
    Ok(())
}

pub(crate) use serving::Bound;

#[cfg(feature = "serve")]
mod serving {
    use super::Listen;
    use crate::output;
    use rxsteer_serve::{Server, Token};
    use std::io::{Error, ErrorKind};
    use std::path::PathBuf;

    /// A listening socket that does not serve yet.
    pub(crate) struct Bound(Server);

    /// A server in its own thread.
    pub(crate) struct Serving(rxsteer_serve::Running);

    impl Listen {
        /// Refuses what is wrong on every host.
        pub(crate) fn check(&self) -> anyhow::Result<()> {
            let has_token = self.listen_token_file.is_some();
            match self.listen {
                Some(address) => Server::check(address, has_token),
                None => {
                    anyhow::ensure!(
                        !has_token,
                        "--listen-token-file requires --listen ADDRESS:PORT"
                    );
                    Ok(())
                }
            }
        }

        /// Also refuses a file without a valid token, if this user may read it.
        #[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "there is no rxsteer run"))]
        pub(crate) fn check_here(&self) -> anyhow::Result<()> {
            self.check()?;
            let is_secret = |why: &anyhow::Error| {
                let mut causes = why.chain().filter_map(|cause| cause.downcast_ref::<Error>());
                causes.any(|cause| cause.kind() == ErrorKind::PermissionDenied)
            };
            match self.listen_token_file.as_deref().map(Token::read) {
                Some(Err(why)) if !is_secret(&why) => Err(why),
                _ => Ok(()),
            }
        }

        /// Listens, if requested.
        pub(crate) fn bind(&self) -> anyhow::Result<Option<Bound>> {
            self.check()?;
            let Some(address) = self.listen else { return Ok(None) };
            let token = self.listen_token_file.as_deref().map(Token::read).transpose()?;
            Ok(Some(Bound(Server::bind(address, token)?)))
        }
    }

    impl Bound {
        /// Serves the instance with this control socket, or all instances, in a thread that first runs `first`.
        pub(crate) fn start(
            self,
            socket: Option<PathBuf>,
            first: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
        ) -> anyhow::Result<Serving> {
            let Bound(server) = self;
            let address = server.address();
            let source = match socket {
                Some(socket) => rxsteer_serve::Source::Instance(socket),
                None => rxsteer_serve::Source::All,
            };
            let running = server.start(source, first)?;
            output::note(&format!("rxsteer: metrics and page at http://{address}/"));
            Ok(Serving(running))
        }
    }

    impl Serving {
        /// Ends the thread.
        pub(crate) fn stop(self) -> anyhow::Result<()> {
            self.0.stop()
        }
    }
}

#[cfg(not(feature = "serve"))]
mod serving {
    use super::Listen;
    use std::path::PathBuf;

    /// This build has none.
    pub(crate) enum Bound {}

    impl Listen {
        /// Refuses what this build does not support.
        #[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "there is no rxsteer run"))]
        pub(crate) fn check_here(&self) -> anyhow::Result<()> {
            self.check()
        }

        /// The same.
        pub(crate) fn bind(&self) -> anyhow::Result<Option<Bound>> {
            self.check().map(|()| None)
        }

        /// The same.
        pub(crate) fn check(&self) -> anyhow::Result<()> {
            anyhow::ensure!(
                *self == Listen::default(),
                "this build serves no metrics. Rebuild with the default features: cargo build --release \
                 --package rxsteer-cli"
            );
            Ok(())
        }
    }

    impl Bound {
        /// Can't be called.
        pub(crate) fn start(
            self,
            _: Option<PathBuf>,
            _: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
        ) -> anyhow::Result<Bound> {
            match self {}
        }

        /// Can't be called.
        pub(crate) fn stop(self) -> anyhow::Result<()> {
            match self {}
        }
    }
}
