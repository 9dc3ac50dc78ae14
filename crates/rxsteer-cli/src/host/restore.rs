//! `rxsteer host restore`: restores the former settings.

use super::apply::{reload, short};
use super::args::RestoreArgs;
use super::namespace;
use super::question::{Waiting, confirm};
use crate::Outcome;
use crate::output::{note, print};
use anyhow::Context;
use rxsteer_host::Root;
use rxsteer_host::change::{self, Journal, Lock, Restored, persisted};
use rxsteer_user::printable;
use serde_json::json;
use std::fmt::Write;

/// The command.
pub(crate) fn command(root: &Root, args: &RestoreArgs) -> anyhow::Result<Outcome> {
    let files = persisted(root);
    let journal = Journal::path(root);
    let has_journal = journal
        .try_exists()
        .with_context(|| format!("can't read {}; run this as root", journal.display()))?;
    if !has_journal && files.is_empty() {
        let nothing =
            "there is nothing to restore: no value that rxsteer host apply set is on record\n";
        print(&if args.json { shown_json(&[], &[]) } else { nothing.to_owned() })?;
        return Ok(Outcome::Success);
    }
    let _lock = Lock::take(root)?;
    let journal = Journal::open(root)?;
    let preview = || change::preview(root, &journal, namespace(root));
    if args.dry_run {
        print(&format!("{}\n", asked(&preview(), &files)))?;
        return Ok(Outcome::Success);
    }
    if !args.yes {
        note(&asked(&preview(), &files));
        if !confirm("Restore these values?")? {
            note("nothing was changed");
            return Ok(Outcome::Success);
        }
    }
    // A restore is idempotent and quick, so a signal between two values would be harmless.
    let _waiting = Waiting::begin()?;
    if let Err(damaged) = journal.check() {
        note(&format!("rxsteer: {damaged}"));
    }
    let restored = change::restore(root, journal, namespace(root))?;
    change::remove(root, &files)?;
    if !files.is_empty() {
        reload(root);
    }
    print(&if args.json { shown_json(&restored, &files) } else { shown(&restored, &files) })?;
    let is_whole = !restored.iter().any(|one| one.outcome.differs());
    Ok(if is_whole { Outcome::Success } else { Outcome::Findings })
}

/// The subject of the question.
fn asked(preview: &[Restored], files: &[String]) -> String {
    let mut text: String = preview.iter().map(line).collect();
    for path in files {
        let _ = writeln!(text, "{} is removed", printable(path));
    }
    text.trim_end().to_owned()
}

/// The result for a value, or its preview.
fn line(one: &Restored) -> String {
    use change::Outcome;
    let (path, was) = (printable(&one.path), short(&one.original));
    match &one.outcome {
        Outcome::Restored { from } => format!("{path}\n  {} -> {was}\n", short(from)),
        Outcome::AsBefore => format!("{path}\n  {was}, as before\n"),
        Outcome::SetByAnother { ours, now } => format!(
            "{path}\n  left at {}: something else set that after rxsteer had set {} (before: {was})\n",
            short(now),
            short(ours)
        ),
        Outcome::Gone => {
            format!("{path}\n  the interface or queue is gone, and its values with it\n")
        }
        Outcome::OtherNamespace { namespace } => format!(
            "{path}\n  it belongs to network namespace {namespace}: run rxsteer host restore there (ip netns exec \
             NAME …)\n"
        ),
        Outcome::Failed { why } => format!("{path}\n  not restored: {}\n", printable(why)),
    }
}

fn shown(restored: &[Restored], files: &[String]) -> String {
    use change::Outcome;
    let mut text: String = restored.iter().map(line).collect();
    let is_done = |one: &&Restored| matches!(one.outcome, Outcome::Restored { .. });
    let done = restored.iter().filter(is_done).count();
    for path in files {
        let _ = writeln!(text, "{} was removed", printable(path));
    }
    let as_before = restored.iter().filter(|one| matches!(one.outcome, Outcome::AsBefore)).count();
    let values = |count| if count == 1 { "value was" } else { "values were" };
    let changed = restored.len() - as_before;
    let _ = match (changed, as_before) {
        (0, 0) => writeln!(text, "no value had to be restored"),
        (0, _) => writeln!(
            text,
            "nothing had to be changed: {as_before} {} as before already",
            values(as_before)
        ),
        (_, 0) => writeln!(text, "{done} of {changed} {} restored", values(changed)),
        _ => writeln!(
            text,
            "{done} of {changed} {} restored; {as_before} more {} as before already",
            values(changed),
            values(as_before)
        ),
    };
    text
}

fn shown_json(restored: &[Restored], files: &[String]) -> String {
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "values": restored,
        "removed": files,
    });
    format!("{report:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use change::Outcome;

    #[test]
    fn value_that_is_as_before_is_no_failure() {
        let of = |outcome| Restored { path: "/a".to_owned(), original: "0\n".to_owned(), outcome };
        let before = of(Outcome::AsBefore);
        let text = shown(std::slice::from_ref(&before), &[]);
        assert!(
            text.ends_with("nothing had to be changed: 1 value was as before already\n"),
            "{text}"
        );
        let text = shown(&[of(Outcome::Restored { from: "3\n".to_owned() }), before], &[]);
        assert!(
            text.ends_with("1 of 1 value was restored; 1 more value was as before already\n"),
            "{text}"
        );
    }
}
