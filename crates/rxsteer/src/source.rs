//! Sources of frames: live interfaces, captures, synthetic traffic, memory, or your own [`Source`].

pub use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, OpenError, RxQueues};
pub use rxsteer_user::source::live::{
    LiveInterface, LiveIo, LiveOptions, LiveSources, apart, interfaces, open as open_live,
};
pub use rxsteer_user::source::memory::MemorySource;
pub use rxsteer_user::source::packet::{
    FilterInstruction, LiveError, PacketError, PacketOptions, PacketSource,
};
pub use rxsteer_user::source::synthetic::{SpecError, SyntheticSource, SyntheticSpec};
#[cfg(feature = "xdp")]
pub use rxsteer_user::source::xdp::{
    Port, XdpError, XdpMode, XdpOptions, XdpPort, XdpQueue, XdpReceiver, XdpSource,
    open as open_xdp,
};
pub use rxsteer_user::source::{Fill, IssueKind, Source, SourceIssue};
