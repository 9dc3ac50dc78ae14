//! `rxsteer run`: runs in the foreground and steers live interfaces until it is stopped.
//!
//! ```text
//!  attach.rs    read, refuse or load and attach         client.rs    asks an instance (status, set, explain)
//!     │                                                     │ control socket: protocol.rs, registry.rs
//!  events.rs    one thread, one poll: signals, links, clock  ◄── queries.rs  another one: answers clients
//!     │
//!  records.rs   a third thread: flow records to files and collectors
//!  instance.rs, interfaces.rs   settings, CPUs, links: state and changes ──► datapath.rs ──► rxsteer-xdp
//! ```
//!
//! Invariants: nothing is attached unless everything can be attached. Nothing remains, however the program ends. After
//! loading, the only remaining privilege is that of scheduling. A misbehaving client, interface or CPU does not stop
//! the others.

#[cfg_attr(
    not(feature = "xdp"),
    expect(dead_code, reason = "most is asked for, and refused by `not_built`")
)]
pub(crate) mod args;
#[cfg(feature = "xdp")]
mod attach;
#[cfg(feature = "xdp")]
pub(crate) mod change;
#[cfg(feature = "xdp")]
mod count;
#[cfg(feature = "xdp")]
mod datapath;
#[cfg(feature = "xdp")]
mod events;
#[cfg(feature = "xdp")]
pub(crate) mod file_check;
#[cfg(feature = "xdp")]
mod flows;
#[cfg(feature = "xdp")]
mod former;
#[cfg(feature = "xdp")]
mod instance;
#[cfg(feature = "xdp")]
mod interfaces;
mod losses;
#[cfg(feature = "xdp")]
mod memory;
#[cfg(feature = "xdp")]
pub(crate) mod privileges;
#[cfg(feature = "xdp")]
mod queries;
#[cfg(feature = "xdp")]
mod queue_names;
#[cfg(feature = "xdp")]
mod records;
#[cfg(feature = "xdp")]
mod reload;
#[cfg(feature = "xdp")]
mod rounds;
pub(crate) mod show;
pub(crate) mod show_flow;
mod show_rates;
mod show_tables;
#[cfg(all(test, feature = "xdp"))]
mod show_tests;
mod show_userspace;
#[cfg(feature = "xdp")]
mod snapshot;
#[cfg(feature = "xdp")]
mod steered;
#[cfg(feature = "xdp")]
mod summaries;
#[cfg(feature = "xdp")]
pub(crate) mod watch;

/// The error message of a build without the in-kernel path.
#[cfg(not(feature = "xdp"))]
pub(crate) fn not_built() -> anyhow::Error {
    anyhow::anyhow!(
        "this build has no in-kernel path (it was built without clang or libelf). Install clang, libelf-dev, \
         zlib1g-dev and pkg-config and rebuild with the default features; rxsteer replay works without it"
    )
}

/// The command.
#[cfg(not(feature = "xdp"))]
pub(crate) fn command(args: args::RunArgs) -> anyhow::Result<crate::Outcome> {
    if !args.to_kernel {
        return Err(not_built());
    }
    let events = crate::events_out::EventsTo::open(&args.settings()?.fixed.events)?;
    crate::fallback::command(&args, &not_built(), events.begin()?)
}

#[cfg(feature = "xdp")]
pub(crate) use running::command;

#[cfg(feature = "xdp")]
mod running {
    use super::args::RunArgs;
    use super::queries::QueryServer;
    use super::reload::Reload;
    use super::{attach, events, privileges, records, show};
    use crate::Outcome;
    use crate::events_out::EventsTo;
    use crate::listen::Bound;
    use crate::output;
    use rxsteer_status::control::Control;
    use rxsteer_status::protocol::Answer;
    use rxsteer_status::registry;
    use rxsteer_user::core::ThreadClass;
    use std::time::Instant;

    /// The command.
    pub(crate) fn command(args: RunArgs) -> anyhow::Result<Outcome> {
        // From here on signals are blocked until they are read, even while programs are loaded.
        let signals = events::signals()?;
        if args.end_with_parent {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
        }
        let settings = args.settings()?;
        let events = &settings.fixed.events;
        events.refuse_beside(&args.config, settings.fixed.records.output.flows.iter().cloned())?;
        let events_to = EventsTo::open(events)?;
        args.check_records(&settings)?;
        let bound = settings.fixed.listen.bind()?;
        let begin = || -> anyhow::Result<_> {
            let mut plan = attach::plan(&args, &settings)?;
            let (listener, registered) = registry::register(args.socket.as_deref())?;
            let notes = std::mem::take(&mut plan.notes);
            let defaults = plan.defaults.clone();
            let path = registered.path.clone();
            let records = records::open(&settings.fixed.records, &args.interfaces)?;
            let instance = attach::start(&args, &settings.fixed, plan, path)?;
            Ok((instance, listener, registered, notes, defaults, records))
        };
        let (mut instance, listener, registered, notes, defaults, opened) = match begin() {
            // If another instance steers the interface, the kernel's steering after it would reorder flows.
            Err(why) if args.to_kernel && !attach::is_steered(&args)? => {
                drop(signals);
                if bound.is_some() {
                    output::note(
                        "rxsteer: --listen has no effect: the kernel's own steering has no counters to serve",
                    );
                }
                return crate::fallback::command(&args, &why, events_to.begin()?);
            }
            started => started?,
        };
        // Threads created later also get their class; with --threads other there is none to set.
        privileges::drop_all(instance.settings.threads != ThreadClass::Other)?;
        // When this returns, the interfaces that will be reported as steered are steered.
        instance.path.tick_until_done()?;
        let mut out = events_to.begin()?;
        let steered = instance.interfaces.iter().map(|known| instance.steering(&known.name));
        let mut events: Vec<_> = steered.collect();
        events.extend(attach::warnings(&instance, &notes));
        // The warnings contain it.
        instance.threads_reported = instance.path.threads_problem().map(|why| why.to_string());
        events::emit(&mut instance, &mut out, events);
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let (json, to_stderr) = (args.json, settings.fixed.events.is_stdout());
        let until = args.duration.and_then(|duration| Instant::now().checked_add(duration));
        let (queries, mut inbox) =
            QueryServer::<rxsteer_xdp::Path>::new(instance.path.view()?, instance.latest())?;
        // New threads start without the privileges that were dropped.
        let (recording, recorded) = match opened {
            None => (None, None),
            Some(opened) => {
                let recorder = instance.path.recorder(opened.timeouts())?;
                let (recording, recorded) = opened.start(recorder)?;
                (Some(recording), Some(recorded))
            }
        };
        let queries = queries.with_records(recorded);
        let queries = queries.open(Control::new(listener)?)?;
        // In that case scheduling requires no privilege.
        let serve =
            |bound: Bound| bound.start(Some(registered.path.clone()), crate::listen::unprivileged);
        let serving = bound.map(serve).transpose()?;
        let reload = Reload::new(args, settings.fixed, defaults);
        let ended =
            events::run(&mut instance, &mut inbox, &signals, reload.as_ref(), until, &mut out)?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        serving.map_or(Ok(()), |serving| serving.stop())?;
        let queries = queries.close(inbox)?;
        events::stop(&mut instance, &mut out);
        out.close();
        recording.map(records::Recording::finish).transpose()?;
        instance.show();
        let Answer::Status(status) = queries.status(0, false) else {
            unreachable!("it is asked for")
        };
        let report = match json {
            true => format!("{:#}\n", serde_json::to_value(&status)?),
            false => show::status(&status, None),
        };
        if to_stderr {
            output::note(report.trim_end());
        } else if let Err(why) = output::print(&report) {
            // It ran, and everything is detached.
            output::note(&format!("rxsteer: {}", output::error_text(&why)));
            return Ok(Outcome::Findings);
        }
        drop(registered);
        Ok(ended)
    }
}
