#![doc = include_str!("../README.md")]
//!
//! # Safety
//!
//! This crate is for C; Rust programs use `rxsteer`. Each function documents what its caller must ensure, and so does the
//! header. No panic leaves a function: it becomes the last error. Pointers are read only for the documented time, and
//! never kept.
//!
//! `types.rs` has the types that C programs see, `instance.rs` and `input.rs` the implementation in safe Rust, and this
//! file connects them.

mod error;
mod input;
mod instance;
mod types;

pub use instance::Instance;
pub use types::*;

use error::{Error, guard};
use instance::{Done, Settings, WorkerParts};
use rxsteer::forward::Action;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// A function succeeded.
pub const RXSTEER_OK: c_int = 0;
/// A function failed; rxsteer_last_error() returns the reason.
pub const RXSTEER_ERROR: c_int = -1;

/// The most packets in a list; the worker's limit.
const LONGEST_LIST: usize = 64;

/// Opens a source of packets. `source` is one of:
///
/// - the name of a capture, or capture:NAME: pcap or pcapng, uncompressed or in gzip or zstd; - is standard input
/// - packet:INTERFACE,…: live interfaces, by packet sockets (AF_PACKET); the host also receives the packets. Requires
///   CAP_NET_RAW
/// - xdp:INTERFACE,…: live interfaces, by AF_XDP sockets; the host does not receive the packets. Requires CAP_NET_RAW,
///   CAP_NET_ADMIN and CAP_BPF, and a library that was built with AF_XDP
/// - live:INTERFACE,…: packet:, or with RXSTEER_FORWARD xdp:
/// - synthetic:SPEC: generated packets, as in rxsteer replay --synthetic
///
/// A run of live interfaces ends when it is stopped, or when no interface is left; the report's `issues` counts interfaces
/// that went away.
///
/// Returns NULL if the source can't be opened. Pass the result to rxsteer_close when it is no longer needed.
///
/// # Safety
/// `source` ends in NUL. `options` is NULL or points to a structure of `options->size` bytes, whose strings are NULL or
/// end in NUL. The function reads all of it before it returns, and keeps no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_open(
    source: *const c_char,
    options: *const Options,
) -> *mut Instance {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let source = unsafe { string(source) }.ok_or("source is NULL; name a capture")?;
        // SAFETY: the caller's promise.
        let settings = unsafe { settings(options) }?;
        Ok(Box::into_raw(Box::new(Instance::open(source.to_bytes(), &settings)?)))
    })
}

/// The number of workers that call the handler: one for each CPU that a packet can go to.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_workers(rx: *const Instance) -> usize {
    // SAFETY: the caller's promise.
    guard(0, || Ok(unsafe { instance(rx) }?.workers()))
}

/// Receives all packets of the source. Returns when they are processed, or, after rxsteer_stop, when those received are.
/// The workers' threads call `handler` with `user`. A source can be run only once.
///
/// rxsteer_open starts no thread. All threads of a run inherit the caller's signal mask: to wait for a signal with sigwait
/// or signalfd, block it before. With RXSTEER_FORWARD this function opens sockets, too, so it needs the capabilities that
/// rxsteer_open needs.
///
/// Returns RXSTEER_OK or RXSTEER_ERROR. A truncated capture is not an error: see the report's `issues`.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and is not closed before this returns. `handler` is NULL or may be called with
/// `user` from any thread, and from several threads at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_run(
    rx: *const Instance,
    handler: Handler,
    user: *mut c_void,
) -> c_int {
    guard(RXSTEER_ERROR, || {
        // SAFETY: the caller's promise.
        let instance = unsafe { instance(rx) }?;
        let function = handler.ok_or("handler is NULL; give a function to call with packets")?;
        let done: Arc<Mutex<Done>> = Arc::default();
        let handler = |parts| CHandler {
            function,
            user,
            parts,
            packets: Vec::with_capacity(LONGEST_LIST),
            verdicts: Vec::with_capacity(LONGEST_LIST),
            actions: Vec::with_capacity(LONGEST_LIST),
            done: done.clone(),
        };
        let take = || std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        instance.run(handler, take)?;
        Ok(RXSTEER_OK)
    })
}

/// Ends a run early. Packets that were received are still processed. Any thread may call this at any time, and so may a
/// handler or a signal handler.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and is not closed before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_stop(rx: *const Instance) {
    // No guard: it can't panic, and a signal handler must not access thread-local memory.
    // SAFETY: the caller's promise.
    if let Some(instance) = unsafe { rx.as_ref() } {
        instance.stop();
    }
}

/// Writes the results of the run to `report`, up to `report->size` bytes. Returns RXSTEER_ERROR before rxsteer_run has
/// returned.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and was not closed. `report` is NULL or points to `report->size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_get_report(rx: *const Instance, report: *mut Report) -> c_int {
    guard(RXSTEER_ERROR, || {
        // SAFETY: the caller's promise.
        let from = *unsafe { instance(rx) }?.report()?;
        if report.is_null() {
            return Err("report is NULL; give the address of an rxsteer_report".into());
        }
        // SAFETY: the caller's promise; every report has a size.
        let size = unsafe { (&raw const (*report).size).read() };
        check_size("report", size)?;
        let from = Report { size, ..from };
        let copied = size.min(size_of::<Report>());
        // SAFETY: `copied` bytes are in both, and the rest up to `size` is the caller's.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), report.cast(), copied);
            report.cast::<u8>().add(copied).write_bytes(0, size - copied);
        }
        Ok(RXSTEER_OK)
    })
}

/// Returns the results of the run as a JSON object with the names of rxsteer replay --json. The string belongs to `rx`.
/// Returns NULL before rxsteer_run has returned.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_report_json(rx: *const Instance) -> *const c_char {
    // SAFETY: the caller's promise.
    guard(std::ptr::null(), || Ok(unsafe { instance(rx) }?.json()?.as_ptr()))
}

/// Frees everything that rxsteer_open allocated. NULL is ignored. While rxsteer_run runs, it frees nothing and returns
/// RXSTEER_ERROR: stop the run and wait until it returns.
///
/// # Safety
/// `rx` is NULL, or is from rxsteer_open and was not closed. Neither it nor its memory may be used from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rxsteer_close(rx: *mut Instance) -> c_int {
    guard(RXSTEER_ERROR, || {
        // SAFETY: the caller's promise.
        let Some(instance) = (unsafe { rx.as_ref() }) else { return Ok(RXSTEER_OK) };
        if instance.is_running() {
            return Err(
                "rxsteer_run has not returned; call rxsteer_stop and wait for it first".into()
            );
        }
        // SAFETY: it came from a Box in rxsteer_open, and is given back once.
        drop(unsafe { Box::from_raw(rx) });
        Ok(RXSTEER_OK)
    })
}

/// Why the last function that failed in this thread failed: a sentence without an end of line, or an empty string. The
/// string is valid until a function fails in this thread; so do not call both in the arguments of one printf.
#[unsafe(no_mangle)]
pub extern "C" fn rxsteer_last_error() -> *const c_char {
    error::last()
}

/// The version of this library, such as 0.2.0; RXSTEER_VERSION is the version of the header.
#[unsafe(no_mangle)]
pub extern "C" fn rxsteer_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A C function as the handler of a worker.
struct CHandler {
    function: unsafe extern "C" fn(*mut c_void, *const List) -> Verdict,
    user: *mut c_void,
    parts: WorkerParts,
    /// The packets of the present list; otherwise empty.
    packets: Vec<Packet>,
    /// The verdicts and the actions for the packets of the last list. They are kept to reuse their memory.
    verdicts: Vec<Verdict>,
    actions: Vec<Action>,
    /// What all handlers of the run did.
    done: Arc<Mutex<Done>>,
}

// SAFETY: the caller of rxsteer_run promises that the function may be called with `user` from any thread. `packets` is
// empty when a handler goes from one thread to another.
unsafe impl Send for CHandler {}

impl rxsteer::Handler for CHandler {
    fn handle(&mut self, list: &rxsteer::PacketList<'_>) {
        self.packets.extend(list.iter().map(|packet| {
            let meta = packet.meta();
            Packet {
                data: packet.bytes().as_ptr(),
                timestamp_ns: meta.timestamp_ns,
                captured_len: meta.captured_len,
                wire_len: meta.wire_len,
                hash: packet.hash().get(),
                rx_queue: meta.rx_queue,
                link_type: meta.link.number(),
                port: self.parts.wiring.port_of(meta.rx_queue) as u16,
            }
        }));
        match self.call(list.cpu()) {
            RXSTEER_CONSUMED => return,
            RXSTEER_PER_PACKET => {}
            verdict => self.verdicts.fill(verdict),
        }
        self.actions.clear();
        for index in 0..self.verdicts.len() {
            let action = self.action(self.verdicts[index]);
            self.actions.push(action);
        }
        self.parts.outputs.forward(list, &self.actions);
    }

    fn tick(&mut self, cpu: rxsteer::CpuId) {
        // There is no packet that a verdict could be about.
        self.call(cpu);
    }

    fn take_unsent(&mut self) -> u64 {
        self.parts.outputs.take_unsent()
    }
}

impl CHandler {
    /// Calls the function with `packets`, which are empty afterwards, as are `verdicts` except for one for each packet.
    fn call(&mut self, cpu: rxsteer::CpuId) -> Verdict {
        self.verdicts.clear();
        self.verdicts.resize(self.packets.len(), RXSTEER_CONSUMED);
        let seen = List {
            size: size_of::<List>(),
            packet_size: size_of::<Packet>(),
            packets: self.packets.as_ptr(),
            count: self.packets.len(),
            cpu: u32::from(cpu.get()),
            worker: self.parts.worker,
            verdicts: self.verdicts.as_mut_ptr(),
        };
        // SAFETY: the promise of the caller of rxsteer_run; the list, its packets and its verdicts live until this
        // returns.
        let verdict = unsafe { (self.function)(self.user, &raw const seen) };
        self.packets.clear();
        verdict
    }

    /// The action of a verdict on a packet. An unknown one ends the run.
    fn action(&self, verdict: Verdict) -> Action {
        match verdict {
            RXSTEER_CONSUMED => Action::Keep,
            RXSTEER_DROP => Action::Drop,
            _ => match verdict.checked_sub(RXSTEER_SEND) {
                Some(port) if (port as usize) < self.parts.outputs.port_count() => {
                    Action::Send(port as usize)
                }
                _ => self.refuse(verdict),
            },
        }
    }

    /// Ends the run, and this worker at once: its list counts as dropped, and rxsteer_run returns an error.
    #[cold]
    fn refuse(&self, verdict: Verdict) -> ! {
        let ports = self.parts.outputs.port_count();
        let why = match verdict.checked_sub(RXSTEER_SEND) {
            Some(port) if port <= u32::from(u16::MAX) && ports == 0 => format!(
                "the handler returned RXSTEER_SEND + {port}, and packets can't be sent on; open live interfaces with \
                 RXSTEER_FORWARD"
            ),
            Some(port) if port <= u32::from(u16::MAX) => format!(
                "the handler returned RXSTEER_SEND + {port}, and the source has {ports} ports, numbered from 0"
            ),
            _ if verdict == RXSTEER_PER_PACKET => {
                "a packet's verdict is RXSTEER_PER_PACKET, which only the handler itself can return"
                    .to_owned()
            }
            _ => format!(
                "the handler returned {verdict}, which is no verdict that this version knows (RXSTEER_CONSUMED, \
                 RXSTEER_DROP, RXSTEER_SEND + a port, RXSTEER_PER_PACKET)"
            ),
        };
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.refused.get_or_insert_with(|| format!("{why}; the run was ended"));
        drop(done);
        instance::set(&self.parts.stop);
        // Without the panic hook, which would print a message.
        std::panic::resume_unwind(Box::new(why));
    }
}

impl Drop for CHandler {
    fn drop(&mut self) {
        let counts = self.parts.outputs.counts();
        self.done.lock().unwrap_or_else(PoisonError::into_inner).counts.merge(&counts);
    }
}

/// The instance that `rx` points to.
///
/// # Safety
/// It is NULL, or is from rxsteer_open and is not closed while the reference lives.
unsafe fn instance<'a>(rx: *const Instance) -> Result<&'a Instance, Error> {
    // SAFETY: the caller's promise.
    unsafe { rx.as_ref() }.ok_or_else(|| "rx is NULL; open a source with rxsteer_open first".into())
}

/// Reads a C string; `None` for NULL.
///
/// # Safety
/// It is NULL or ends in NUL, and is not written while the reference lives.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Reads the options, as far as the caller's structure goes. Fields that this library does not know must be zero.
///
/// # Safety
/// They are NULL, or have the size that they contain, and their strings are NULL or end in NUL.
unsafe fn settings(options: *const Options) -> Result<Settings, Error> {
    if options.is_null() {
        return Ok(Settings::default());
    }
    // SAFETY: the caller's promise; all options have a size.
    let size = unsafe { (&raw const (*options).size).read() };
    check_size("options", size)?;
    let known = size.min(size_of::<Options>());
    // SAFETY: zeros are NULL and 0; of the caller's bytes those are copied that it has.
    let given = unsafe {
        let mut given: Options = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut given).cast(), known);
        given
    };
    // SAFETY: these bytes are within `size`.
    let unknown =
        unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err("options: a field is set that this version does not know; use a newer library, or leave it zero".into());
    }
    let text = |option: *const c_char, name: &str| {
        // SAFETY: the caller's promise.
        let text =
            unsafe { string(option) }.map(|text| text.to_str().map(str::to_owned)).transpose();
        text.map_err(|_| format!("options: {name} is not UTF-8"))
    };
    Ok(Settings {
        policy: text(given.policy, "policy")?,
        cpus: text(given.cpus, "cpus")?,
        max_backlog: given.max_backlog,
        batch: given.batch,
        flags: given.flags,
        tick_ms: given.tick_ms,
        rx_cpus: text(given.rx_cpus, "rx_cpus")?,
    })
}

/// No version's structures are larger. A larger size was probably not initialised.
const LARGEST: usize = 4096;

/// Checks that a structure's size is valid: it never ends within a pointer.
fn check_size(name: &str, size: usize) -> Result<(), Error> {
    if (size_of::<usize>()..=LARGEST).contains(&size) && size.is_multiple_of(size_of::<usize>()) {
        return Ok(());
    }
    Err(format!("{name}: its size is {size}; set {name}.size to sizeof({name}) first").into())
}
