//! Steering in the kernel.

#[cfg(feature = "bpf")]
#[doc(hidden)]
pub mod testing;
