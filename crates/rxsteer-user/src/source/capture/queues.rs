//! Which RX queue a frame of a capture counts for.

use rxsteer_packet::{DissectOptions, Hasher, LinkType, Toeplitz};

/// Most RX queues of a capture source. Files or interfaces beyond share queues, in turn.
pub const MAX_RX_QUEUES: usize = 1024;

/// Entries of a NIC's indirection table, from hash to queue.
const INDIRECTION: usize = 128;

/// Which RX queue the frames of captures are said to have arrived on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxQueues {
    /// All on queue 0.
    #[default]
    Single,
    /// Every file its own queue, in the order given.
    PerFile,
    /// Every interface its own queue, in order of appearance: a pcap file has one, a pcapng
    /// file those its sections describe.
    PerInterface,
    /// As a NIC with this many queues spreads them: by the Toeplitz hash with the well-known key,
    /// through an indirection table of 128 entries. Frames without a hash arrive on queue 0.
    Hashed(u16),
}

/// Gives each frame its RX queue, and says whether it is for this reader.
#[derive(Debug)]
pub(super) struct Queues {
    mode: RxQueues,
    hasher: Option<Hasher>,
    file: usize,
    interfaces: usize,
    share: (u16, u16),
}

impl Queues {
    pub(super) fn new(mode: RxQueues, share: (u16, u16)) -> Queues {
        let hashed = matches!(mode, RxQueues::Hashed(_));
        Queues {
            mode,
            hasher: hashed.then(|| Hasher::Toeplitz(Toeplitz::default())),
            file: 0,
            interfaces: 0,
            share,
        }
    }

    /// Starts with the first file, again or anew.
    pub(super) fn restart(&mut self) {
        self.interfaces = 0;
    }

    pub(super) fn begin_file(&mut self, file: usize) {
        self.file = file;
    }

    /// The queue of an interface that has just appeared in the file.
    pub(super) fn of_new_interface(&mut self) -> u16 {
        let number = match self.mode {
            RxQueues::Single | RxQueues::Hashed(_) => 0,
            RxQueues::PerFile => self.file,
            RxQueues::PerInterface => {
                self.interfaces += 1;
                self.interfaces - 1
            }
        };
        (number % MAX_RX_QUEUES) as u16
    }

    /// The queue of a frame, given that of its interface.
    #[inline]
    pub(super) fn of_frame(&self, of_interface: u16, link: LinkType, frame: &[u8]) -> u16 {
        match (&self.hasher, self.mode) {
            (Some(hasher), RxQueues::Hashed(queues)) => {
                let hash = hasher.flow_hash(link, frame, DissectOptions::default()).hash.get();
                let queues = queues.clamp(1, MAX_RX_QUEUES as u16);
                // The indirection table as drivers fill it: entry i holds i modulo the queues.
                (hash as usize % INDIRECTION) as u16 % queues
            }
            _ => of_interface,
        }
    }

    /// Whether the frames of a queue are this reader's.
    #[inline]
    pub(super) fn are_mine(&self, queue: u16) -> bool {
        let (index, count) = self.share;
        count <= 1 || queue % count == index
    }
}
