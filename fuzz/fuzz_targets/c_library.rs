//! Any options and any bytes as a capture, through the C library's boundary as a C program calls it. Options are read in
//! place from a structure of any size; what comes back has to add up, in structures of any size too.
//!
//! The first byte says how large the options are, the next ones are their numbers, then come the policy and the CPUs, each
//! up to a NUL, and then the capture.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rxsteer_c::*;
use std::ffi::{CStr, CString, c_void};
use std::io::Write;
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

/// Each worker is a thread; a run with more says nothing more.
const MAX_WORKERS: usize = 4;

unsafe extern "C" fn handle(user: *mut c_void, list: *const List) -> Verdict {
    let (list, seen) = unsafe { (&*list, &*user.cast::<AtomicU64>()) };
    let packets = unsafe { std::slice::from_raw_parts(list.packets, list.count) };
    for packet in packets {
        let bytes = unsafe { std::slice::from_raw_parts(packet.data, packet.captured_len as usize) };
        std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    }
    seen.fetch_add(list.count as u64, Ordering::Relaxed);
    // Lists of odd lengths have verdicts for their packets.
    if list.count % 2 == 0 {
        return RXSTEER_CONSUMED;
    }
    let verdicts = unsafe { std::slice::from_raw_parts_mut(list.verdicts, list.count) };
    assert!(verdicts.iter().all(|verdict| *verdict == RXSTEER_CONSUMED));
    verdicts[0] = RXSTEER_DROP;
    RXSTEER_PER_PACKET
}

/// A text up to a NUL, and what follows it.
fn text(input: &[u8]) -> (CString, &[u8]) {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    (CString::new(&input[..end]).unwrap(), input.get(end + 1..).unwrap_or_default())
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap())
}

fuzz_target!(|input: &[u8]| {
    let Some((head, rest)) = input.split_at_checked(17) else { return };
    let (policy, rest) = text(rest);
    let (cpus, capture) = text(rest);
    // As large as the program says, and no larger: an address sanitizer sees what is read behind it.
    let size = usize::from(head[0]);
    let whole = Options {
        size,
        policy: if policy.is_empty() { null() } else { policy.as_ptr() },
        cpus: cpus.as_ptr(),
        max_backlog: number(&head[1..5]),
        batch: number(&head[5..9]),
        // Pinning would have every run on CPU 0.
        flags: number(&head[9..13]) | RXSTEER_NO_PIN,
        tick_ms: number(&head[13..17]),
        rx_cpus: null(),
    };
    let mut given = vec![0_u64; size.max(8).div_ceil(8)].into_boxed_slice();
    let copied = (given.len() * 8).min(size_of::<Options>());
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), given.as_mut_ptr().cast(), copied);
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let name = CString::new(file.path().to_str().unwrap()).unwrap();
    unsafe {
        let rx = rxsteer_open(name.as_ptr(), given.as_ptr().cast());
        if rx.is_null() {
            assert!(!CStr::from_ptr(rxsteer_last_error()).is_empty());
            return;
        }
        if rxsteer_workers(rx) <= MAX_WORKERS {
            let seen = AtomicU64::new(0);
            let result = rxsteer_run(rx, Some(handle), (&raw const seen).cast_mut().cast());
            let error = CStr::from_ptr(rxsteer_last_error()).to_str().unwrap();
            assert!(result == RXSTEER_OK, "{error}");
            let mut report = Report { size: size_of::<Report>(), ..Report::default() };
            assert_eq!(rxsteer_get_report(rx, &mut report), RXSTEER_OK);
            assert_eq!(report.packets, report.delivered + report.dropped);
            assert_eq!((report.delivered, report.reordered), (seen.into_inner(), 0));
            assert!(report.refused <= report.delivered && report.sent == 0);
            let json = CStr::from_ptr(rxsteer_report_json(rx)).to_str().unwrap();
            assert!(json.starts_with('{') && json.ends_with('}'));
        }
        assert_eq!(rxsteer_close(rx), RXSTEER_OK);
    }
});
