//! `rxsteer serve`: a separate process with metrics and a page for the running instances.

use crate::host::question::Waiting;
use crate::listen::{Bound, Listen, address};
use crate::{Outcome, listen};
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The length of one wait; the server never ends by itself.
const LONG: Duration = Duration::from_secs(3600);

/// Serve running instances' metrics to Prometheus and as a web page
///
/// Like rxsteer status, it reads the instances' control sockets, so run it as the same user. It changes nothing, and
/// reads nothing while there is no viewer. It also finds instances that start later. A single instance can serve its
/// own metrics: rxsteer run --listen.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer serve                             then open http://127.0.0.1:9817/\n  \
    rxsteer serve --listen '[::1]:9900' --socket /run/rxsteer/4711.sock\n  \
    rxsteer serve --listen 0.0.0.0:9817 --listen-token-file /etc/rxsteer/token\n  \
    curl -s http://127.0.0.1:9817/metrics | promtool check metrics\n  \
    curl -s http://127.0.0.1:9817/api/status | jq '.instances[].received'\n\n\
    It answers only GET and HEAD requests for names and addresses of this host, on at most 32 connections; \
    docs/metrics.md has all metrics and limits.\n\n\
    Exit status: 0 ended by SIGTERM, SIGINT or SIGHUP; 2 it could not run.")]
pub(crate) struct ServeArgs {
    /// Where to serve; port 0 picks a free one
    ///
    /// An address that other hosts can reach requires --listen-token-file.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, default_value = "127.0.0.1:9817")]
    listen: SocketAddr,

    /// Require clients to send the token in this file: Authorization: Bearer TOKEN, or once
    /// http://ADDRESS:PORT/?token=TOKEN in a browser
    ///
    /// The token has 16 to 256 letters, digits and -._~; make one with: openssl rand -hex 32. No other user may have
    /// permission to read the file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    listen_token_file: Option<PathBuf>,

    /// Only the instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
}

/// The command.
pub(crate) fn command(args: &ServeArgs) -> anyhow::Result<Outcome> {
    let asked =
        Listen { listen: Some(args.listen), listen_token_file: args.listen_token_file.clone() };
    let bound = asked.bind()?;
    let waiting = Waiting::begin()?;
    listen::unprivileged()?;
    let start = |bound: Bound| bound.start(args.socket.clone(), listen::unprivileged);
    let serving = bound.map(start).transpose()?;
    while !waiting.is_ended_within(LONG) {}
    serving.map_or(Ok(()), |serving| serving.stop())?;
    Ok(Outcome::Success)
}
