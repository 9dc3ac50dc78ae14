//! Filters of packet sockets: programs of classic BPF.

/// An instruction of classic BPF (linux/filter.h, `struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterInstruction {
    /// The operation.
    pub code: u16,
    /// How many instructions to skip if a condition is true.
    pub jump_true: u8,
    /// How many to skip if it is false.
    pub jump_false: u8,
    /// The operand.
    pub k: u32,
}

/// `return 0` and `return -1` (`BPF_RET | BPF_K`): accept no frame, and accept every frame whole.
pub(crate) const NOTHING: FilterInstruction =
    FilterInstruction { code: 0x06, jump_true: 0, jump_false: 0, k: 0 };
pub(crate) const EVERYTHING: FilterInstruction = FilterInstruction { k: u32::MAX, ..NOTHING };
