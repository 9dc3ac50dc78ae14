//! `rxsteer host`: shows, sets and restores the kernel's own steering.
//!
//! `rxsteer-host` collects facts, makes plans and writes; this module handles options, output and confirmation.

pub(crate) mod apply;
pub(crate) mod args;
pub(crate) mod question;
pub(crate) mod recommend;
mod restore;
mod show;

use crate::Outcome;
use crate::check;
use args::{HostArgs, HostCommand};
use rxsteer_host::{HostError, InterfaceKnobs, Link, Root, links};
use std::os::unix::fs::MetadataExt;

/// The command.
pub(crate) fn command(args: &HostArgs) -> anyhow::Result<Outcome> {
    let root = if args.root.as_os_str() == "/" { Root::host() } else { Root::at(&args.root) };
    anyhow::ensure!(
        root.path("/sys").is_dir(),
        "there is no /sys below {}; name a folder with a recorded tree, or leave --root out",
        rxsteer_user::shown(&args.root)
    );
    match &args.command {
        HostCommand::Show(args) => show::command(&root, args),
        HostCommand::Recommend(args) => recommend::command(&root, args),
        HostCommand::Apply(args) => apply::command(&root, args),
        HostCommand::Restore(args) => restore::command(&root, args),
    }
}

/// All interfaces. For a recorded tree only names and indices are known.
fn listed(root: &Root) -> Result<Vec<Link>, HostError> {
    if root.is_host() {
        return links();
    }
    let link =
        |knobs: InterfaceKnobs| Link { index: knobs.index, name: knobs.name, ..Link::default() };
    Ok(InterfaceKnobs::read_all(root)?.into_iter().map(link).collect())
}

/// The interfaces that match names and patterns; without any, the NICs. The error contains the nearest name.
fn chosen<'a>(root: &Root, names: &[String], links: &'a [Link]) -> anyhow::Result<Vec<&'a Link>> {
    Ok(match names {
        [] if root.is_host() => check::nics(links),
        [] => links.iter().filter(|link| link.name != "lo").collect(),
        names => check::chosen(names, links)?,
    })
}

/// The settings of these interfaces.
fn interfaces(root: &Root, names: &[String]) -> anyhow::Result<Vec<InterfaceKnobs>> {
    let links = listed(root)?;
    let read = |link: &Link| Ok(InterfaceKnobs::read(root, &link.name)?);
    chosen(root, names, &links)?.into_iter().map(read).collect()
}

/// The inode of this network namespace; 0 for a recorded tree.
pub(crate) fn namespace(root: &Root) -> u64 {
    let own = std::fs::metadata("/proc/self/ns/net").ok().filter(|_| root.is_host());
    own.map_or(0, |metadata| metadata.ino())
}
