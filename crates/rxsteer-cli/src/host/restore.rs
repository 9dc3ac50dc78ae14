//! `rxsteer host restore`: back to what was before.

use super::apply::{reload, short};
use super::args::RestoreArgs;
use super::namespace;
use super::question::{Waiting, ask};
use crate::Outcome;
use crate::output::{note, print};
use anyhow::Context;
use rxsteer_host::Root;
use rxsteer_host::change::{self, Change, Journal, Lock, Restored, persisted};
use rxsteer_user::printable;
use serde_json::json;
use std::fmt::Write;

/// The command.
pub(crate) fn command(root: &Root, args: &RestoreArgs) -> anyhow::Result<Outcome> {
    let files = persisted(root);
    let journal = Journal::path(root);
    let has_journal = journal
        .try_exists()
        .with_context(|| format!("can't look at {}; run this as root", journal.display()))?;
    if !has_journal && files.is_empty() {
        let nothing =
            "there is nothing to restore: rxsteer host apply has set nothing since boot\n";
        print(&if args.json { shown_json(&[], &[]) } else { nothing.to_owned() })?;
        return Ok(Outcome::Success);
    }
    let _lock = Lock::take(root)?;
    let journal = Journal::open(root)?;
    if args.dry_run {
        print(&format!("{}\n", asked(journal.changes(), &files)))?;
        return Ok(Outcome::Success);
    }
    if !args.yes {
        note(&asked(journal.changes(), &files));
        if !ask("Set these values back?")? {
            note("nothing was changed");
            return Ok(Outcome::Success);
        }
    }
    // It is idempotent: an end by a signal between two values would do no harm, and this is quick.
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
    let is_whole = !restored.iter().any(|one| one.outcome.is_failure());
    Ok(if is_whole { Outcome::Success } else { Outcome::Findings })
}

/// What the question is about.
fn asked(changes: &[Change], files: &[String]) -> String {
    let mut text = String::new();
    for change in changes {
        let (path, now, back) =
            (printable(&change.path), short(&change.new), short(&change.original));
        // Writing to a String does not fail.
        let _ = match change.new == change.original {
            true => writeln!(text, "{path}\n  {back}, as before: it needs no change"),
            false => writeln!(text, "{path}\n  {now} -> {back}"),
        };
    }
    for path in files {
        let _ = writeln!(text, "{} is removed", printable(path));
    }
    text.trim_end().to_owned()
}

fn shown(restored: &[Restored], files: &[String]) -> String {
    use change::Outcome;
    let mut text = String::new();
    let mut done = 0;
    for one in restored {
        let (path, was) = (printable(&one.path), short(&one.original));
        // Writing to a String does not fail.
        let _ = match &one.outcome {
            Outcome::Restored { from } => {
                done += 1;
                writeln!(text, "{path}\n  {} -> {was}", short(from))
            }
            Outcome::AsBefore => writeln!(text, "{path}\n  {was}, as before"),
            Outcome::SetByAnother { ours, now } => writeln!(
                text,
                "{path}\n  left at {}: something else set that after rxsteer had set {} (before: {was})",
                short(now),
                short(ours)
            ),
            Outcome::Gone => {
                writeln!(text, "{path}\n  the interface or queue is gone, and its values with it")
            }
            Outcome::OtherNamespace { namespace } => writeln!(
                text,
                "{path}\n  it is of network namespace {namespace}: run rxsteer host restore there (ip netns exec NAME …)"
            ),
            Outcome::Failed { why } => writeln!(text, "{path}\n  not restored: {}", printable(why)),
        };
    }
    for path in files {
        let _ = writeln!(text, "{} was removed", printable(path));
    }
    let as_before = restored.iter().filter(|one| matches!(one.outcome, Outcome::AsBefore)).count();
    let values = |count| if count == 1 { "value was" } else { "values were" };
    let changed = restored.len() - as_before;
    let _ = match (changed, as_before) {
        (0, 0) => writeln!(text, "no value had to be set back"),
        (0, _) => writeln!(
            text,
            "nothing had to be changed: {as_before} {} as before already",
            values(as_before)
        ),
        (_, 0) => writeln!(text, "{done} of {changed} {} set back", values(changed)),
        _ => writeln!(
            text,
            "{done} of {changed} {} set back; {as_before} more {} as before already",
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
            text.ends_with("1 of 1 value was set back; 1 more value was as before already\n"),
            "{text}"
        );
    }
}
