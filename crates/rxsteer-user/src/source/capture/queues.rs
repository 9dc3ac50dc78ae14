//! Assigns frames of captures to RX queues.

use rxsteer_packet::{DissectOptions, Hasher, LinkType, Toeplitz};

/// The largest number of RX queues of a capture source. Further files or interfaces share queues, in turn.
pub const MAX_RX_QUEUES: usize = 1024;

/// Entries of a NIC's indirection table, from hash to queue.
const INDIRECTION: usize = 128;

/// The RX queue on which a frame of a capture arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxQueues {
    /// All frames arrive on queue 0.
    #[default]
    Single,
    /// Each file has its own queue, in the given order.
    PerFile,
    /// Each interface has its own queue, in order of appearance. A pcap file has one interface; a pcapng file has those
    /// that its sections describe.
    PerInterface,
    /// Frames are spread as by a NIC with this many queues: by the Toeplitz hash with the well-known key, through an
    /// indirection table of 128 entries. Frames without a hash arrive on queue 0.
    Hashed(u16),
}

/// Assigns each frame its RX queue, and selects the frames of this reader.
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

    /// Starts with the first file, for the first or another round.
    pub(super) fn restart(&mut self) {
        self.interfaces = 0;
    }

    pub(super) fn begin_file(&mut self, file: usize) {
        self.file = file;
    }

    /// The queue of an interface that first appears in the file.
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

    /// Whether this reader receives the frames of a queue.
    #[inline]
    pub(super) fn are_mine(&self, queue: u16) -> bool {
        let (index, count) = self.share;
        count <= 1 || queue % count == index
    }
}
