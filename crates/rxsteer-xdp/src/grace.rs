//! Waits for a grace period: until every program and every poll that is under way has ended, on all CPUs, including the
//! frames that GRO holds until its poll ends.
//!
//! Polls and BPF programs run with bottom halves disabled, which is an RCU read-side critical section. The kernel
//! guarantees user space an RCU grace period in one place: an update of a map in a map returns when no program can use the
//! former inner map any more (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, since Linux 4.19: `synchronize_rcu`). On
//! kernels where updates of maps require no capability, this one requires none either. The guarantee also holds with
//! `nohz_full`. (`membarrier(MEMBARRIER_CMD_GLOBAL)` happens to call the same function, but guarantees less, and the
//! kernel refuses it with `nohz_full`.)

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A map in a map that no program uses.
#[derive(Debug)]
pub(crate) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    /// Creates the maps, which requires CAP_BPF.
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

    /// Waits for a grace period: several ticks of the timer. Works without capabilities.
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

/// A thread that waits for grace periods, so that the threads that request them can do other work meanwhile. The thread
/// ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Graces {
    grace: Grace,
    shared: Arc<Shared>,
}

/// A grace period that begins after the request for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Waits are numbered from 1; one thread does them one after the other.
#[derive(Debug, Default)]
struct State {
    /// The last wait that was requested, that began, and that succeeded.
    wanted: u64,
    begun: u64,
    over: u64,
    /// The last wait that failed, and why.
    failed: Option<(u64, String)>,
    /// No more will be requested.
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the first wait that begins from now on.
    fn request(&self) -> u64 {
        let mut state = self.lock();
        state.wanted = state.begun + 1;
        let number = state.wanted;
        drop(state);
        self.changed.notify_one();
        number
    }

    fn is_over(&self, ticket: Ticket) -> io::Result<bool> {
        let state = self.lock();
        if state.over >= ticket.0 {
            return Ok(true);
        }
        match &state.failed {
            Some((number, why)) if *number >= ticket.0 => Err(io::Error::other(why.clone())),
            _ => Ok(false),
        }
    }

    /// The work of the thread.
    fn wait_for_all(&self, wait: impl Fn() -> io::Result<()>) {
        let mut state = self.lock();
        loop {
            while state.begun >= state.wanted {
                if state.ends {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.begun += 1;
            let number = state.begun;
            drop(state);
            let waited = wait();
            state = self.lock();
            match waited {
                Ok(()) => state.over = number,
                Err(why) => state.failed = Some((number, why.to_string())),
            }
        }
    }
}

impl Graces {
    /// Begins the thread.
    ///
    /// # Errors
    /// When the thread or its maps can't be made.
    pub(crate) fn new(grace: Grace) -> io::Result<Graces> {
        let shared = Arc::<Shared>::default();
        let (its, its_grace) = (shared.clone(), grace.another().map_err(io::Error::other)?);
        let work = move || {
            // The wait requires no capability, and a thread inherits those of its creator.
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            let dropped = set_capabilities(None, sets);
            its.wait_for_all(|| dropped.map_err(Into::into).and_then(|()| its_grace.wait()));
        };
        std::thread::Builder::new().name("rxsteer-grace".into()).spawn(work)?;
        Ok(Graces { grace, shared })
    }

    /// The same maps for another thread.
    pub(crate) fn another(&self) -> Result<Grace, libbpf_rs::Error> {
        self.grace.another()
    }

    /// Requests a grace period, without waiting for it.
    pub(crate) fn begin(&self) -> Ticket {
        Ticket(self.shared.request())
    }

    /// Whether the grace period is over. If the wait for it failed, this requests another one.
    ///
    /// # Errors
    /// As [`Graces::is_over`].
    pub(crate) fn has_passed(&self, ticket: &mut Ticket) -> io::Result<bool> {
        self.is_over(*ticket).inspect_err(|_| *ticket = self.begin())
    }

    /// Whether the grace period is over.
    ///
    /// # Errors
    /// When the wait for it failed. No grace period may have passed then.
    pub(crate) fn is_over(&self, ticket: Ticket) -> io::Result<bool> {
        self.shared.is_over(ticket)
    }
}

#[cfg(test)]
impl Graces {
    /// How many grace periods were requested.
    pub(crate) fn requested(&self) -> u64 {
        self.shared.lock().wanted
    }

    /// Returns when all requested grace periods are over.
    pub(crate) fn until_all_are_over(&self) {
        let state = || {
            let state = self.shared.lock();
            (state.wanted, state.over.max(state.failed.as_ref().map_or(0, |failed| failed.0)))
        };
        while matches!(state(), (wanted, over) if over < wanted) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Graces {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_one();
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

    #[test]
    fn ticket_is_over_after_a_wait_that_began_later() {
        let (shared, held) = (Arc::new(Shared::default()), Arc::new(Mutex::new(())));
        let is_over = |number| shared.is_over(Ticket(number));
        let hold = held.lock().unwrap();
        let (its, its_held) = (shared.clone(), held.clone());
        std::thread::spawn(move || {
            its.wait_for_all(|| {
                drop(its_held.lock());
                if its.lock().begun == 3 { Err(io::Error::other("no")) } else { Ok(()) }
            });
        });
        let until = |is_so: &dyn Fn(&State) -> bool| {
            while !is_so(&shared.lock()) {
                std::thread::yield_now();
            }
        };
        let first = shared.request();
        until(&|state| state.begun == first);
        // The wait under way began before this request, so it does not count.
        let second = shared.request();
        assert_eq!((second, shared.request()), (first + 1, first + 1), "requests share a wait");
        assert!(!is_over(first).unwrap());
        drop(hold);
        until(&|state| state.over == second);
        assert!(is_over(first).unwrap() && is_over(second).unwrap());
        let third = shared.request();
        assert_eq!(third, 3);
        until(&|state| state.failed.is_some());
        assert_eq!(is_over(third).unwrap_err().to_string(), "no");
        assert!(is_over(second).unwrap());
        let fourth = shared.request();
        until(&|state| state.over == fourth);
        assert!(is_over(third).unwrap(), "a later one counts, too");
    }
}
