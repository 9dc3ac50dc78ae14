//! `rxsteer host apply`: shows a plan, asks, writes it, measures, asks for confirmation, and makes it persistent.

use super::args::ApplyArgs;
use super::question::{Ended, Waiting, confirm};
use super::{interfaces, namespace};
use crate::output::lines::{field, paragraphs};
use crate::output::{self, note, print};
use crate::{Outcome, check};
use anyhow::{Context, anyhow};
use rxsteer_host::change::{
    self, ApplyError, Journal, Lock, Measured, Persisted, Plan, Refusal, Turn, Verdict, Wanted,
    judge, persist_files, undo, verify,
};
use rxsteer_host::recommend::left_alone;
use rxsteer_host::{Globals, Link, Reach, Root, Topology, links, others};
use rxsteer_user::printable;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// The command.
pub(crate) fn command(root: &Root, args: &ApplyArgs) -> anyhow::Result<Outcome> {
    let interfaces = interfaces(root, &args.interfaces)?;
    let wanted = Wanted {
        cpus: args.cpus.clone(),
        rfs: args.rfs,
        xps: args.xps,
        flow_limit: args.flow_limit,
        off: args.off,
        ..Wanted::default()
    };
    let (topology, globals) = (Topology::read(root), Globals::read(root));
    let plans = Plan::of_each(root, &interfaces, &topology, &globals, namespace(root), &wanted)?;
    let mut persisted = Vec::new();
    if args.persist {
        let program = std::env::current_exe().context("can't find the program's own path")?;
        for (knobs, plan) in interfaces.iter().zip(&plans) {
            persisted.push(persist_files(root, knobs, plan, &wanted, &program)?);
        }
    }
    let Some(mut plan) = Plan::join(plans) else {
        print("There is no NIC here; name an interface: rxsteer host apply IFACE\n")?;
        return Ok(Outcome::Success);
    };
    if !args.off {
        plan.notes.extend(interfaces.iter().filter_map(left_alone));
    }
    print(&shown(root, &plan, &persisted))?;
    if args.dry_run {
        return Ok(Outcome::Success);
    }
    if plan.writes.is_empty() && persisted.is_empty() {
        return Ok(Outcome::Success);
    }
    let links = links()?;
    let is_meant = |link: &&Link| plan.interfaces.contains(&link.name);
    let busy = links.iter().filter(is_meant).find_map(check::busy);
    if let Some(error) = busy.filter(|_| !args.off) {
        return Err(error.context(
            "the kernel would move packets again after rxsteer, out of order; nothing was changed",
        ));
    }
    change::may_apply(root, &plan)
        .map_err(|error| anyhow!("can't write {}", printable(&error.to_string())))?;
    let _lock = Lock::take(root)?;
    if !args.yes && !confirm("Write these values?")? {
        note("nothing was changed");
        return Ok(Outcome::Success);
    }
    let (verify, confirm) = (args.verify, args.confirm);
    let waiting = &Waiting::begin()?;
    Applying { root, verify, confirm, plan: &plan, waiting }.run(&persisted)
}

/// The writes as a diff, notes, and the files of `--persist`.
pub(crate) fn shown(root: &Root, plan: &Plan, persisted: &[Persisted]) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    for write in &plan.writes {
        let (old, new) = (short(&write.old), short(&write.new));
        let _ = writeln!(text, "{}\n  {old} -> {new}   {}", printable(&write.path), write.meaning);
    }
    if plan.writes.is_empty() {
        let _ = writeln!(
            text,
            "{} already has these settings; there is nothing to write",
            printable(&plan.interfaces.join(", "))
        );
    }
    for note in &plan.notes {
        field(&mut text, "note:", 6, note);
    }
    for other in others(root) {
        // A finding about interrupts matters only if something is set near them.
        let concerns = other.reach != Reach::Interrupts || !plan.writes.is_empty();
        if concerns {
            field(&mut text, "note:", 6, &format!("{}: {}", printable(&other.what), other.effect));
        }
    }
    for persisted in persisted {
        text.push('\n');
        text += &paragraphs(&format!("set again at boot by {}", persisted.why));
        for file in &persisted.files {
            let _ = writeln!(text, "{}", file.path);
            for line in file.text.lines() {
                let _ = writeln!(text, "  {}", printable(line));
            }
        }
        for path in &persisted.replaced {
            let _ = writeln!(text, "{} is removed", printable(path));
        }
    }
    text
}

/// A value in short form: with thousands of CPUs, consecutive groups without CPUs are only counted.
pub(super) fn short(value: &str) -> String {
    const NONE: &str = "00000000";
    const FEW: usize = 3;
    let groups: Vec<&str> = value.trim().split(',').collect();
    let parts =
        groups.chunk_by(|one, next| *one == NONE && *next == NONE).map(|run| match run.len() {
            count if count > FEW => format!("{NONE} x {count}"),
            _ => run.join(","),
        });
    printable(&parts.collect::<Vec<_>>().join(",")).into_owned()
}

/// An apply that the user confirmed.
pub(crate) struct Applying<'a> {
    pub(crate) root: &'a Root,
    pub(crate) verify: Option<Duration>,
    pub(crate) confirm: Option<Duration>,
    pub(crate) plan: &'a Plan,
    pub(crate) waiting: &'a Waiting,
}

impl Applying<'_> {
    pub(crate) fn run(&self, persisted: &[Persisted]) -> anyhow::Result<Outcome> {
        let outcome = self.set()?;
        if outcome != Outcome::Success {
            return Ok(outcome);
        }
        for persisted in persisted {
            persisted
                .write(self.root)
                .context("the values are set, but they will not be set again at boot")?;
        }
        if !persisted.is_empty() {
            reload(self.root);
        }
        let count = self.plan.writes.len();
        let (values, them) = if count == 1 { ("value is", "it") } else { ("values are", "them") };
        print(&format!("{count} {values} set; rxsteer host restore restores {them}\n"))?;
        Ok(Outcome::Success)
    }

    /// Writes, measures, and waits for confirmation; success if the settings stay.
    pub(crate) fn set(&self) -> anyhow::Result<Outcome> {
        let mut journal = Journal::open(self.root)?;
        journal.check()?;
        if let Err(error) = change::apply(self.root, &mut journal, self.plan) {
            return self.refused(journal, &error);
        }
        let why = match self.verified(&mut journal)? {
            Some(why) => Some(why),
            None => self.unconfirmed()?,
        };
        match why {
            Some(why) => self.undone(journal, &why),
            None => Ok(Outcome::Success),
        }
    }

    /// The kernel or the system refused, and everything that was set was restored.
    fn refused(&self, journal: Journal, error: &ApplyError) -> anyhow::Result<Outcome> {
        let (refusal, undone) = (&error.refusal, error.undone);
        let all = if undone == 0 {
            "nothing was changed".to_owned()
        } else {
            format!("{undone} values that were set are restored")
        };
        self.forget(journal, &error.left)?;
        note(&format!("rxsteer: {}; {all}", printable(&refusal.to_string())));
        Ok(Outcome::Findings)
    }

    pub(crate) fn undone(&self, mut journal: Journal, why: &str) -> anyhow::Result<Outcome> {
        let left = undo(self.root, &mut journal, self.plan);
        self.forget(journal, &left)?;
        note(&format!("rxsteer: {why}; the old values are restored"));
        Ok(Outcome::Findings)
    }

    fn forget(&self, journal: Journal, left: &[Refusal]) -> anyhow::Result<()> {
        for refusal in left {
            note(&format!(
                "rxsteer: it could not be restored: {}",
                printable(&refusal.to_string())
            ));
        }
        Ok(journal.forget_unchanged()?)
    }

    /// If the measurement shows that it should be undone, the reason.
    fn verified(&self, journal: &mut Journal) -> anyhow::Result<Option<String>> {
        let Some(time) = self.verify else { return Ok(None) };
        let old = self.plan.reversed();
        note(&format!("measuring old and new settings in turns for {time:?}"));
        let mut is_new = true;
        let put = |turn: Turn| -> Result<(), ApplyError> {
            let wanted = turn == Turn::New;
            if wanted != is_new {
                change::apply(self.root, journal, if wanted { self.plan } else { &old })?;
                is_new = wanted;
            }
            Ok(())
        };
        let wait = |time| self.waiting.is_ended_within(time);
        let turns = match verify(self.root, &self.plan.interfaces, time, put, wait) {
            Ok(Some(turns)) => turns,
            Ok(None) => return Ok(Some("it was interrupted during the measurement".to_owned())),
            Err(error) => {
                return Ok(Some(format!("a turn failed: {}", printable(&error.to_string()))));
            }
        };
        let verdict = judge(&turns);
        print(&table(&turns, &verdict))?;
        Ok(match verdict {
            Verdict::Worse { what } => Some(format!("it is worse ({})", what.join("; "))),
            _ => None,
        })
    }

    /// If no answer came, the reason to undo it.
    fn unconfirmed(&self) -> anyhow::Result<Option<String>> {
        let Some(time) = self.confirm else { return Ok(None) };
        note(&format!("it is set; press Enter within {time:?} to keep it"));
        Ok(match self.waiting.for_line(time) {
            Ended::Line => None,
            Ended::Time => Some("it was not confirmed in time".to_owned()),
            Ended::Closed => Some("standard input was closed before it was confirmed".to_owned()),
            Ended::Signal => Some("it was interrupted before it was confirmed".to_owned()),
        })
    }
}

/// The measurements, one line per turn.
pub(crate) fn table(turns: &[(Turn, Measured)], verdict: &Verdict) -> String {
    let mut text =
        "settings   packets  drops/M  squeezes/M  softirq ns/packet  busiest CPU  imbalance\n"
            .to_owned();
    for (turn, of) in turns {
        let name = if *turn == Turn::Old { "old" } else { "new" };
        let _ = writeln!(
            text,
            "{name:<8} {:>9} {:>8.0} {:>11.0} {:>18.0} {:>11.1}% {:>10.2}",
            of.packets,
            of.dropped_ppm,
            of.squeezed_ppm,
            of.softirq_ns,
            of.busiest * 100.0,
            of.imbalance
        );
    }
    let _ = match verdict {
        Verdict::Better { what } => writeln!(text, "better: {}", what.join("; ")),
        Verdict::Same => writeln!(text, "no clear difference; it is kept"),
        Verdict::Worse { what } => writeln!(text, "worse: {}", what.join("; ")),
        Verdict::TooQuiet { packets } => {
            writeln!(text, "one turn had {packets} packets, too few to compare; it is kept")
        }
    };
    text
}

/// Makes systemd and udev read their files again, if they run. Otherwise they read them at the next boot.
pub(super) fn reload(root: &Root) {
    if !root.is_host() || !root.path("/run/systemd/system").is_dir() {
        return;
    }
    for (program, arguments) in
        [("systemctl", &["daemon-reload"][..]), ("udevadm", &["control", "--reload"][..])]
    {
        let ended = Command::new(program).args(arguments).status();
        if !ended.is_ok_and(|status| status.success()) {
            let line = arguments.join(" ");
            output::note(&format!("note: {program} {line} failed; run it, or reboot"));
        }
    }
}
