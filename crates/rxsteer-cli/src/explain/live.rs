//! `rxsteer explain FLOW --live`: where a flow is now, according to the instance that steers it.

use super::args::ExplainArgs;
use crate::run::show_flow;
use crate::{Outcome, output};
use rxsteer_status::client;
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_user::shown;

/// The command.
pub(super) fn command(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    // A flow that cannot be parsed is refused without a request to the instance.
    args.flow().map_err(|why| anyhow::anyhow!(why))?;
    let flow = args.what.to_string_lossy().into_owned();
    let socket = client::one(args.socket.as_deref(), None)?;
    let Answer::Explain(at) = client::request(&socket, &Request::Explain { flow })? else {
        anyhow::bail!(
            "the instance at {} sent an unexpected answer; is it of another version?",
            shown(&socket)
        );
    };
    if args.json {
        output::print(&format!("{:#}\n", serde_json::to_value(&at)?))?;
    } else {
        output::print(&show_flow::explained(&at))?;
    }
    Ok(Outcome::Success)
}
