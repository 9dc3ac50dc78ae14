//! How a setting names RX queues: `eth0:0`, `eth0` or `0`.

use crate::limits::MAX_RX_QUEUES;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// The longest name of an interface, in bytes: the kernel's `IFNAMSIZ` less the final zero.
const MAX_NAME: usize = 15;

/// The RX queues that a setting applies to: one queue of one interface (`eth0:0`), every queue of one interface
/// (`eth0`), or the queue with this number of every interface (`0`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    interface: Option<String>,
    queue: Option<u16>,
}

impl QueueName {
    /// The interface, if the name contains one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// The number of the queue, if the name contains one.
    #[must_use]
    pub fn queue(&self) -> Option<u16> {
        self.queue
    }

    /// Whether the setting applies to queue `queue` of `interface`; `None` is an interface without a name.
    #[must_use]
    pub fn is_for(&self, interface: Option<&str>, queue: u16) -> bool {
        self.queue.is_none_or(|named| named == queue)
            && self.interface().is_none_or(|named| Some(named) == interface)
    }

    /// The most specific of the settings that apply to a queue: `eth0:0` before `eth0` before `0`.
    #[must_use]
    pub fn most_specific<'a, T>(
        settings: &'a [(QueueName, T)],
        interface: Option<&str>,
        queue: u16,
    ) -> Option<&'a T> {
        let rank = |name: &QueueName| (name.interface.is_some(), name.queue.is_some());
        let fits = settings.iter().filter(|(name, _)| name.is_for(interface, queue));
        fits.max_by_key(|(name, _)| rank(name)).map(|(_, setting)| setting)
    }

    /// The first name that occurs twice in `settings`.
    pub(crate) fn repeated<T>(settings: &[(QueueName, T)]) -> Option<&QueueName> {
        let earlier = |at: usize, name| settings[..at].iter().any(|(other, _)| other == name);
        settings.iter().enumerate().find_map(|(at, (name, _))| earlier(at, name).then_some(name))
    }

    /// Reads `NAME=…` and returns the name and the text after the sign.
    ///
    /// # Errors
    /// [`QueueNameError`].
    pub fn parse_setting(text: &str) -> Result<(QueueName, &str), QueueNameError> {
        // The name of an interface may contain the sign; CPU lists never do.
        let (name, value) =
            text.rsplit_once('=').ok_or_else(|| QueueNameError::NoValue(text.to_string()))?;
        Ok((name.trim().parse()?, value.trim()))
    }
}

impl From<u16> for QueueName {
    /// The queue with the number `queue` of every interface.
    fn from(queue: u16) -> QueueName {
        QueueName { interface: None, queue: Some(queue) }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.interface, self.queue) {
            (Some(interface), Some(queue)) => write!(f, "{interface}:{queue}"),
            (Some(interface), None) => f.write_str(interface),
            (None, Some(queue)) => write!(f, "{queue}"),
            (None, None) => f.write_str("all RX queues"),
        }
    }
}

/// Why a text is not the name of an RX queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueNameError {
    /// No `=` follows the name; holds the text.
    NoValue(String),
    /// The text is not the number of a queue.
    Queue(String),
    /// No interface can have this name.
    Interface(String),
    /// The text is a pattern of names.
    Pattern(String),
}

impl fmt::Display for QueueNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(text) => write!(f, "'{text}' has no '='; write e.g. eth0:0=1 or 0=1"),
            Self::Queue(text) => write!(
                f,
                "'{text}' is not an RX queue's number; queues are numbered from 0 to {}",
                MAX_RX_QUEUES - 1
            ),
            Self::Interface(text) => {
                write!(f, "'{text}' is not an interface's name; write e.g. eth0:0 or eth0")
            }
            Self::Pattern(text) => write!(
                f,
                "'{text}' is a pattern; name one interface (eth0:0), or leave it out and give the queue of every \
                 interface (0)"
            ),
        }
    }
}

impl core::error::Error for QueueNameError {}

impl FromStr for QueueName {
    type Err = QueueNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let queue = text.parse().ok().filter(|queue| *queue < MAX_RX_QUEUES);
            queue.ok_or_else(|| QueueNameError::Queue(text.to_string()))
        };
        let (interface, queue) = match text.split_once(':') {
            Some((interface, queue)) => (Some(interface), Some(number(queue)?)),
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => (None, Some(number(text)?)),
            None => (Some(text), None),
        };
        if let Some(name) = interface {
            if name.contains(['*', '?', '[']) {
                return Err(QueueNameError::Pattern(name.to_string()));
            }
            // The same check as in the kernel's dev_valid_name; a comma would end the name in a list.
            let is_bad = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | ',');
            if name.is_empty() || name.len() > MAX_NAME || name.contains(is_bad) {
                return Err(QueueNameError::Interface(name.to_string()));
            }
        }
        Ok(QueueName { interface: interface.map(ToString::to_string), queue })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn name(text: &str) -> QueueName {
        text.parse().unwrap()
    }

    #[test]
    fn names_round_trip_and_bad_ones_say_why() {
        for text in ["eth0:0", "eth0", "0", "1023", "br-lan.7:12", "0:1"] {
            assert_eq!(name(text).to_string(), text);
        }
        assert_eq!((name("0").interface(), name("0").queue()), (None, Some(0)));
        assert_eq!((name("0:1").interface(), name("0:1").queue()), (Some("0"), Some(1)));
        let error = |text: &str| text.parse::<QueueName>().unwrap_err();
        for bad in ["", "1024", "eth0:", "eth0:x", "eth0:1024", "eth0:-1", "a:b:0"] {
            assert!(matches!(error(bad), QueueNameError::Queue(_)), "{bad}");
        }
        for bad in [":0", "eth 0", "a/b", "a-name-too-long0"] {
            assert!(matches!(error(bad), QueueNameError::Interface(_)), "{bad}");
        }
        assert!(matches!(error("veth*:0"), QueueNameError::Pattern(_)));
        assert_eq!(QueueName::parse_setting("eth0:1 = 4-7"), Ok((name("eth0:1"), "4-7")));
        assert!(QueueName::parse_setting("eth0:1").is_err());
    }

    #[test]
    fn most_specific_setting_holds() {
        let settings = [("1", 'a'), ("eth0", 'b'), ("eth0:1", 'c'), ("eth1:0", 'd')];
        let settings: Vec<_> = settings.map(|(text, is)| (name(text), is)).into();
        let of = |interface, queue| QueueName::most_specific(&settings, interface, queue).copied();
        assert_eq!((of(Some("eth0"), 0), of(Some("eth0"), 1)), (Some('b'), Some('c')));
        assert_eq!((of(Some("eth1"), 0), of(Some("eth1"), 1)), (Some('d'), Some('a')));
        assert_eq!((of(None, 1), of(None, 0), of(Some("eth2"), 0)), (Some('a'), None, None));
    }
}
