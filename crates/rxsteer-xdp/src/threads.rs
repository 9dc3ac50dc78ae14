//! The kernel threads of the CPUMAP rings: finds them by name, puts them into a scheduling class, and reads how long
//! they ran and waited.
//!
//! The kernel creates a thread with each CPUMAP entry (kernel/bpf/cpumap.c), and names it "cpumap/CPU/map:ID". The
//! thread begins in the class of ordinary processes, where it waits for its CPU behind every busy process while its
//! ring overflows. The id of the map distinguishes our threads from those of other instances. A thread ends with its
//! entry, so nothing that is set here outlives this process.

use crate::abi::{GENERATIONS, set_class};
use rxsteer_core::ThreadClass;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use thiserror::Error;

/// Why threads are not in the requested class.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ThreadsError {
    /// `/proc` shows no kernel thread.
    #[error(
        "the ring threads can't be set to {0}: /proc shows no kernel threads here, as in a container with a PID \
         namespace of its own, or with hidepid. They stay in class other. What to do: start the container in the \
         host's \
         PID namespace (--pid host), or run 'chrt -f -p 1 PID' on the host for each thread that \
         'pgrep cpumap/' lists"
    )]
    Hidden(ThreadClass),
    /// The kernel refused the class.
    #[error(
        "the ring threads can't be set to {0}: the kernel returns {1}. They stay in class other. What to do: give \
         rxsteer CAP_SYS_NICE (systemd: add it to CapabilityBoundingSet= and leave RestrictRealtime= off; container: \
         --cap-add SYS_NICE); an instance that was started with --threads other has given it up: restart that with \
         --threads {0}; with CONFIG_RT_GROUP_SCHED the root group needs real-time runtime, too \
         (cpu.rt_runtime_us)"
    )]
    Refused(ThreadClass, String),
}

/// The threads of all rings.
#[derive(Debug)]
pub(crate) struct Threads {
    /// By generation.
    map_ids: [u32; GENERATIONS as usize],
    /// By ring.
    known: Box<[Option<Thread>]>,
    class: ThreadClass,
    problem: Option<ThreadsError>,
}

#[derive(Debug)]
struct Thread {
    pid: u32,
    /// The thread's `schedstat`, if it can be read: nanoseconds on a CPU, nanoseconds waiting for a CPU, number of
    /// runs.
    schedstat: Option<File>,
}

/// The scheduler's counts of a thread since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    pub(crate) ran_ns: u64,
    pub(crate) waited_ns: u64,
}

impl Threads {
    pub(crate) fn new(map_ids: [u32; GENERATIONS as usize], ring_count: u32) -> Threads {
        let known = (0..ring_count).map(|_| None).collect();
        Threads { map_ids, known, class: ThreadClass::Other, problem: None }
    }

    /// Puts new threads of `rings` into the current class. If that fails, [`Threads::problem`] has the reason, and the
    /// threads stay in their class.
    pub(crate) fn adopt(&mut self, rings: &[u32]) {
        let is_new = |ring: &u32| self.known[*ring as usize].is_none();
        let new: Vec<u32> = rings.iter().copied().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        // A thread begins in this class.
        let is_there = self.class == ThreadClass::Other;
        let found = self.find(&new);
        self.problem = match is_there {
            true => None,
            false => self.put(&new, self.class).and(found).err(),
        };
    }

    /// Puts the threads of `rings`, which are all rings, into another class. If one thread cannot be, all threads stay
    /// as they were.
    pub(crate) fn set_class(
        &mut self,
        rings: &[u32],
        class: ThreadClass,
    ) -> Result<(), ThreadsError> {
        if class == self.class && self.problem.is_none() {
            return Ok(());
        }
        let with = |why| match why {
            ThreadsError::Hidden(_) => ThreadsError::Hidden(class),
            ThreadsError::Refused(_, why) => ThreadsError::Refused(class, why),
        };
        // If no thread could be seen, none is in a class other than `Other`.
        if let Err(why) = self.find(rings)
            && class != ThreadClass::Other
        {
            return Err(with(why));
        }
        if let Err(why) = self.put(rings, class) {
            // The former class was allowed a moment ago, so it is still allowed.
            let _ = self.put(rings, self.class);
            return Err(with(why));
        }
        (self.class, self.problem) = (class, None);
        Ok(())
    }

    /// Sets the class for new threads.
    pub(crate) fn begin_with(&mut self, class: ThreadClass) {
        self.class = class;
    }

    /// Why threads are not in the current class.
    pub(crate) fn problem(&self) -> Option<&ThreadsError> {
        self.problem.as_ref()
    }

    /// Forgets the ring's thread, since the ring gets another one or none.
    pub(crate) fn forget(&mut self, ring: u32) {
        self.known[ring as usize] = None;
    }

    fn put(&self, rings: &[u32], class: ThreadClass) -> Result<(), ThreadsError> {
        let known = rings.iter().filter_map(|ring| self.known[*ring as usize].as_ref());
        for thread in known.filter(|thread| class_of(thread.pid) != Some(class)) {
            set_class(thread.pid, class)
                .map_err(|why| ThreadsError::Refused(class, why.to_string()))?;
        }
        Ok(())
    }

    /// Finds the threads of `rings` that are not known yet.
    fn find(&mut self, rings: &[u32]) -> Result<(), ThreadsError> {
        let name = |ring: u32| {
            let (cpu, map) = (ring / GENERATIONS, self.map_ids[(ring % GENERATIONS) as usize]);
            format!("cpumap/{cpu}/map:{map}")
        };
        let mut missing: Vec<(u32, String)> = rings
            .iter()
            .filter(|ring| self.known[**ring as usize].is_none())
            .map(|ring| (*ring, name(*ring)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        // The newest first, since a thread that is just ending has the same name.
        for pid in kernel_threads().into_iter().rev() {
            let Ok(comm) = std::fs::read_to_string(format!("/proc/{pid}/comm")) else { continue };
            let at = missing.iter().position(|(_, name)| name == comm.trim_end());
            let Some((ring, _)) = at.map(|at| missing.swap_remove(at)) else { continue };
            let schedstat = File::open(format!("/proc/{pid}/schedstat")).ok();
            self.known[ring as usize] = Some(Thread { pid, schedstat });
            if missing.is_empty() {
                return Ok(());
            }
        }
        Err(ThreadsError::Hidden(self.class))
    }

    /// The scheduler's counts of a ring's thread; `None` where they cannot be read.
    pub(crate) fn scheduled(&self, ring: u32) -> Option<Scheduled> {
        let file = self.known[ring as usize].as_ref()?.schedstat.as_ref()?;
        let mut bytes = [0; 96];
        let length = file.read_at(&mut bytes, 0).ok()?;
        Scheduled::of(std::str::from_utf8(&bytes[..length]).ok()?)
    }

    /// The scheduling class of a ring's thread, whichever process set it.
    pub(crate) fn class_of(&self, ring: u32) -> Option<ThreadClass> {
        class_of(self.known[ring as usize].as_ref()?.pid)
    }
}

impl Scheduled {
    fn of(text: &str) -> Option<Scheduled> {
        let mut fields = text.split_whitespace().map(str::parse);
        let (ran_ns, waited_ns) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(Scheduled { ran_ns, waited_ns })
    }
}

/// Every kernel thread that `/proc` shows, the oldest first.
fn kernel_threads() -> Vec<u32> {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    // In another PID namespace, process 2 is not kthreadd.
    if text("/proc/2/comm").trim_end() != "kthreadd" {
        return Vec::new();
    }
    let children = text("/proc/2/task/2/children");
    if !children.is_empty() {
        return children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    // For kernels without CONFIG_PROC_CHILDREN.
    let entries = std::fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn class_of(pid: u32) -> Option<ThreadClass> {
    class_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The class in a line of `/proc/PID/stat` (proc(5): nice is field 19, the real-time priority 40, the policy 41).
fn class_in(stat: &str) -> Option<ThreadClass> {
    // Field 3 follows the name in brackets, and the name may itself contain brackets.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    match field(41)? {
        0 => match i8::try_from(field(19)?).ok()? {
            0 => Some(ThreadClass::Other),
            nice => Some(ThreadClass::Nice(nice)),
        },
        1 => u8::try_from(field(40)?).ok().map(ThreadClass::Fifo),
        _ => None,
    }
}

/// The arguments of `set_class` for the kernel: the policy, the nice value, the real-time priority.
pub(crate) fn kernel_values(class: ThreadClass) -> (u32, i32, u32) {
    const SCHED_OTHER: u32 = 0;
    const SCHED_FIFO: u32 = 1;
    match class {
        ThreadClass::Other => (SCHED_OTHER, 0, 0),
        ThreadClass::Nice(nice) => (SCHED_OTHER, i32::from(nice), 0),
        ThreadClass::Fifo(priority) => (SCHED_FIFO, 0, u32::from(priority)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_read_from_a_line_of_stat() {
        // Fields 3 to 41, of which 19, 40 and 41 matter.
        let line = |nice: i32, priority: u32, policy: u32| {
            let mut fields = vec!["0".to_owned(); 39];
            fields[0] = "S".to_owned();
            fields[16] = nice.to_string();
            fields[37] = priority.to_string();
            fields[38] = policy.to_string();
            format!("31 (cpumap/1/map:7 (x) y) {} 0 0", fields.join(" "))
        };
        assert_eq!(class_in(&line(0, 0, 0)), Some(ThreadClass::Other));
        assert_eq!(class_in(&line(-20, 0, 0)), Some(ThreadClass::Nice(-20)));
        assert_eq!(class_in(&line(0, 7, 1)), Some(ThreadClass::Fifo(7)));
        assert_eq!(class_in(&line(0, 7, 2)), None, "SCHED_RR is none of ours");
        assert_eq!(class_in("no line"), None);
    }

    #[test]
    fn what_the_scheduler_counted_is_read() {
        let scheduled = Scheduled { ran_ns: 46, waited_ns: 108 };
        assert_eq!(Scheduled::of("46 108 63\n"), Some(scheduled));
        assert_eq!(Scheduled::of(""), None);
    }

    #[test]
    fn threads_that_are_not_there_are_reported_to_be_hidden_and_hold_nothing_up() {
        // No map has this id.
        let mut threads = Threads::new([u32::MAX; GENERATIONS as usize], 4);
        threads.adopt(&[0, 2]);
        assert_eq!(threads.problem(), None, "nothing is to be set");
        let fifo = ThreadClass::Fifo(1);
        assert_eq!(threads.set_class(&[0, 2], fifo), Err(ThreadsError::Hidden(fifo)));
        threads.begin_with(fifo);
        threads.adopt(&[0, 2]);
        assert_eq!(threads.problem(), Some(&ThreadsError::Hidden(fifo)));
        assert_eq!(threads.set_class(&[0, 2], ThreadClass::Other), Ok(()));
        assert_eq!((threads.problem(), threads.scheduled(0)), (None, None));
    }
}
