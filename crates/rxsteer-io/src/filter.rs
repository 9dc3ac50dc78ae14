//! Filters of packet sockets: programs of classic BPF.

/// An instruction of classic BPF (linux/filter.h, `struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterInstruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip where a condition is true.
    pub jump_true: u8,
    /// The same where it is false.
    pub jump_false: u8,
    /// A number for the instruction.
    pub k: u32,
}

/// `return 0` and `return -1` (`BPF_RET | BPF_K`): no frame, and every frame whole.
pub(crate) const NOTHING: FilterInstruction =
    FilterInstruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 };
pub(crate) const EVERYTHING: FilterInstruction = FilterInstruction { k: u32::MAX, ..NOTHING };
