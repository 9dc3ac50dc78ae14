//! Steering in the kernel.
