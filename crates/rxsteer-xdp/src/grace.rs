//! Waiting for a grace period: until every program and every poll that is under way has ended, on all CPUs, together
//! with the frames that GRO held in it.
//!
//! Polls and BPF programs run with bottom halves off, which is an RCU read-side critical section. The kernel guarantees
//! user space an RCU grace period in one place: an update of a map in a map returns when no program can use the former
//! one any more (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, since Linux 4.19: `synchronize_rcu`). The update
//! needs no capability where the update of any map needs none, and the guarantee also holds with `nohz_full`.
//! (`membarrier(MEMBARRIER_CMD_GLOBAL)` happens to call the same function, guarantees less, and is refused with
//! `nohz_full`.)

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A map in a map that no program uses.
#[derive(Debug)]
pub(crate) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    /// Creates the maps, which needs CAP_BPF.
    pub(crate) fn new() -> Result<Grace, libbpf_rs::Error> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
            ..Default::default()
        };
        let create = |kind, name, options| MapHandle::create(kind, Some(name), 4, 4, 1, options);
        let inner = create(MapType::Array, "steer_nothing", &options)?;
        let inner_map_fd = inner.as_fd().as_raw_fd() as u32;
        let options = bpf_map_create_opts { inner_map_fd, ..options };
        Ok(Grace { outer: create(MapType::ArrayOfMaps, "steer_grace", &options)?, inner })
    }

    /// The same maps for another thread.
    pub(crate) fn another(&self) -> Result<Grace, libbpf_rs::Error> {
        let [outer, inner] = [&self.outer, &self.inner].map(MapHandle::try_from);
        Ok(Grace { outer: outer?, inner: inner? })
    }

    /// Waits for a grace period: some ticks of the timer. Works without capabilities.
    ///
    /// # Errors
    /// When the kernel refuses the update. No grace period has passed then.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        let updated = self.outer.update(&0u32.to_ne_bytes(), &inner, MapFlags::ANY);
        updated.map_err(|why| {
            io::Error::other(format!(
                "a grace period can't be waited for by the update of a BPF map: {why}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{Array, steer_pair};
    use crate::testing::grace::{GraceTestSkel, GraceTestSkelBuilder};
    use crate::testing::{loaded, skipped};
    use libbpf_rs::ProgramInput;
    use libbpf_rs::skel::{OpenSkel, SkelBuilder};
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    use std::mem::MaybeUninit;
    use std::time::Instant;

    fn load() -> Result<GraceTestSkel<'static>, libbpf_rs::Error> {
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        GraceTestSkelBuilder::default().open(storage)?.load()
    }

    /// Drops all capabilities, as `run` does once everything is loaded.
    fn drop_capabilities() {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).expect("capabilities can be dropped");
    }

    #[test]
    fn grace_period_outlasts_a_running_program_and_needs_no_capability() {
        let test = "grace::grace_period_outlasts_a_running_program_and_needs_no_capability";
        let Some(skel) = loaded(test, load()) else { return };
        let grace = Grace::new().expect("who may load programs may make maps");
        // The first number is `begun`, the second is `ended`.
        let progress = Array::<steer_pair>::new(&skel.maps.progress).expect("it can be mapped");
        // Returns whether the program was still running when the wait began, which is the case that the test needs.
        let attempt = || {
            (0..=4).step_by(4).for_each(|offset| progress.set_number(0, offset, 0));
            std::thread::scope(|scope| {
                let (grace, progress) = (&grace, &progress);
                let waiting = scope.spawn(move || {
                    drop_capabilities();
                    while progress.get_number(0, 0) == 0 {
                        std::thread::yield_now();
                    }
                    let was_running = progress.get_number(0, 4) == 0;
                    let begun = Instant::now();
                    grace.wait().expect("no capability is needed");
                    println!(
                        "a grace period, program running {was_running}: {:?}",
                        begun.elapsed()
                    );
                    assert_eq!(progress.get_number(0, 4), 1, "the program was under way");
                    was_running
                });
                let input = ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() };
                let verdict = skel.progs.take_long.test_run(input).expect("it was loaded");
                assert_eq!(verdict.return_value, 2, "XDP_PASS");
                waiting.join().expect("it waits for the program")
            })
        };
        if !(0..20).any(|_| attempt()) {
            let why = "the program was always over before the wait began; it takes a second CPU";
            skipped(test, why);
        }
        for _ in 0..3 {
            let begun = Instant::now();
            grace.wait().expect("it worked before");
            println!("a grace period: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn grace_period_that_is_refused_is_an_error() {
        let test = "grace::grace_period_that_is_refused_is_an_error";
        let Some(Grace { outer, .. }) = loaded(test, Grace::new()) else { return };
        // A map of maps cannot contain another map of maps.
        let inner = MapHandle::try_from(&outer).expect("it is open");
        let refused = Grace { outer, inner }.wait().unwrap_err().to_string();
        assert!(refused.contains("a grace period can't be waited for"), "{refused}");
    }
}
