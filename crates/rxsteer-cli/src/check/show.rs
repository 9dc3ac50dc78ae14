//! Findings as text and as JSON.

use super::{Checked, CheckedInterface};
use crate::output::lines;
use rxsteer_host::{Finding, State, Trial, can_run};
use serde_json::{Value, json};
use std::fmt::Write;

/// The most columns in a line.
const WIDTH: usize = 100;
/// The column at which the text of a finding begins.
const INDENT: usize = 24;
/// The column at which the verdict on an interface begins.
const VERDICT: usize = 10;

/// The output as text: the host, the interfaces, the verdict.
pub(super) fn text(checked: &Checked, kernel_log: bool) -> String {
    let mut text = String::new();
    if let (true, Trial::Fails { log, .. }) = (kernel_log, &checked.host.programs) {
        text += log;
        text.push('\n');
    }
    heading(&mut text, "host");
    for finding in &checked.host_findings {
        show(&mut text, finding);
    }
    if checked.asked_for {
        for interface in &checked.interfaces {
            text.push('\n');
            heading(&mut text, &interface.facts.link.name);
            for finding in &interface.findings {
                show(&mut text, finding);
            }
        }
    }
    text.push('\n');
    for interface in &checked.interfaces {
        let name = &interface.facts.link.name;
        entry(&mut text, name, VERDICT, &format!("can run: {}", can(checked, interface)));
        entry(&mut text, "", VERDICT, &format!("does it help: {}", interface.help));
    }
    if checked.interfaces.is_empty() {
        text += "There is no NIC here; name an interface to look at it.\n";
    } else if !checked.asked_for {
        text += "\nMore about one of them: rxsteer check IFACE\n";
    }
    text
}

/// "yes", or what prevents it.
fn can(checked: &Checked, interface: &CheckedInterface) -> String {
    let all = checked.host_findings.iter().chain(&interface.findings);
    let blocking: Vec<&Finding> = all.filter(|finding| finding.blocks).collect();
    if blocking.is_empty() {
        return "yes".to_owned();
    }
    // A finding that is already listed above is not repeated.
    let topic = |finding: &&Finding| {
        if checked.asked_for || checked.host_findings.contains(finding) {
            finding.subject()
        } else {
            format!("{}: {}", finding.subject(), finding.what)
        }
    };
    format!("no ({})", blocking.iter().map(topic).collect::<Vec<_>>().join("; "))
}

fn heading(text: &mut String, name: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{name}");
}

fn show(text: &mut String, finding: &Finding) {
    let state = match (finding.state, finding.blocks) {
        (State::Fine, _) => "ok",
        (State::Note, _) => "note",
        (State::No, false) => "no",
        (State::No, true) => "NO",
    };
    entry(text, &format!("  {state:<5}{}", finding.subject()), INDENT, &finding.what);
    if finding.state != State::Fine {
        entry(text, "", INDENT, &finding.why);
    }
    if let Some(fix) = &finding.fix {
        entry(text, "", INDENT, &format!("-> {fix}"));
    }
}

/// A name and its text, which wraps at column `indent`, or after the name if that is longer.
pub(crate) fn entry(text: &mut String, name: &str, indent: usize, what: &str) {
    lines::entry(text, name, indent.max(name.chars().count() + 2), what, WIDTH);
}

/// The same for programs, with all facts.
pub(super) fn json(checked: &Checked) -> Value {
    let host = can_run(&checked.host_findings);
    let interface = |interface: &CheckedInterface| {
        json!({
            "name": interface.facts.link.name,
            "can_run": host && can_run(&interface.findings),
            "help": interface.help,
            "by": checked.by(interface),
            "findings": interface.findings,
            "facts": interface.facts,
        })
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "hostname": checked.name,
        "can_run": checked.can_run(),
        "host": {
            "can_run": host,
            "findings": checked.host_findings,
            "facts": checked.host,
        },
        "interfaces": checked.interfaces.iter().map(interface).collect::<Vec<_>>(),
    })
}
