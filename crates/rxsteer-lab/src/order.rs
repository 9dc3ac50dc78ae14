//! Checks at the entry of the network stack whether numbered frames arrive in order.

use std::time::Duration;

use libbpf_rs::{Link as BpfLink, Object};

use crate::error::{Bpf, Result};
use crate::namespace::Namespace;
use crate::objects::{ObjectSpec, map, on_each_cpu, program, words};
use crate::testbed::End;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/order.o"));

/// A check that runs until this is dropped.
#[derive(Debug)]
pub struct OrderCheck {
    object: Object,
    flows: u32,
    _link: BpfLink,
}

/// The results of the check, for one flow or for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames delivered, as their sender counts them.
    pub frames: u64,
    /// Socket buffers delivered: fewer than frames if some frames were merged.
    pub buffers: u64,
    /// Socket buffers with several frames.
    pub merged: u64,
    /// Socket buffers that arrived after a later one of their flow.
    pub late: u64,
    /// How often a flow was delivered on another CPU than before.
    pub moves: u64,
    /// The largest distance by which a frame was late, in frames of its flow.
    pub furthest: u64,
    /// The CPU of the last one, for a single flow.
    pub cpu: Option<u64>,
}

impl OrderCheck {
    /// Starts to check frames of flows 0 to `flows` - 1 that arrive at an interface.
    pub fn new(namespace: &Namespace, end: &End, flows: u32) -> Result<Self> {
        let settings: Vec<u8> =
            [end.index, namespace.inode()?].into_iter().flat_map(u32::to_ne_bytes).collect();
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["order_check"],
            settings: &settings,
            map: ("order_flows", flows),
        };
        let object = spec.load()?;
        let link = program(&object, "order_check")?
            .attach()
            .bpf(|| "attach the order check to netif_receive_skb".to_owned())?;
        Ok(Self { object, flows, _link: link })
    }

    /// The results for each flow.
    pub fn flows(&self) -> Result<Vec<Seen>> {
        let map = map(&self.object, "order_flows")?;
        (0..self.flows)
            .map(|flow| {
                let words = words(&map, flow)?;
                let word = |index: usize| words.get(index).copied().unwrap_or(0);
                Ok(Seen {
                    frames: word(1),
                    buffers: word(2),
                    merged: word(3),
                    late: word(4),
                    moves: word(5),
                    furthest: word(7),
                    cpu: word(6).checked_sub(1),
                })
            })
            .collect()
    }

    /// The results for all flows together.
    pub fn total(&self) -> Result<Seen> {
        let flows = self.flows()?;
        let sum = |of: fn(&Seen) -> u64| flows.iter().map(of).sum();
        Ok(Seen {
            frames: sum(|seen| seen.frames),
            buffers: sum(|seen| seen.buffers),
            merged: sum(|seen| seen.merged),
            late: sum(|seen| seen.late),
            moves: sum(|seen| seen.moves),
            furthest: flows.iter().map(|seen| seen.furthest).max().unwrap_or(0),
            cpu: None,
        })
    }

    /// Numbered frames, by the CPU that passed them to the stack.
    pub fn by_cpu(&self) -> Result<Vec<u64>> {
        on_each_cpu(&self.object, "order_frames", 0)
    }

    /// All frames, numbered or not, by the CPU that passed them to the stack.
    pub fn all_by_cpu(&self) -> Result<Vec<u64>> {
        on_each_cpu(&self.object, "order_frames", 1)
    }

    /// Waits until nothing has arrived for a while; returns the results for all flows.
    pub fn drained(&self) -> Result<Seen> {
        let mut before = None;
        loop {
            let now = self.all_by_cpu()?;
            if before.as_ref() == Some(&now) {
                return self.total();
            }
            before = Some(now);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
