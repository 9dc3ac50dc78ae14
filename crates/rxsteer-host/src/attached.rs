//! The XDP program that is attached to an interface.

use crate::holder::Holder;
use serde::Serialize;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// After the driver, once there is a socket buffer.
    Generic,
    /// In the NIC.
    Offloaded,
    /// More than one, in different modes.
    Several,
}

/// An XDP program that is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attached {
    /// How it is attached.
    pub mode: AttachedMode,
    /// The program's id, if there is exactly one program.
    pub id: Option<u32>,
    /// The process that holds it, if that is visible.
    pub holder: Option<Holder>,
}
