//! Lists the interfaces of this network namespace, and finds one by name.

use crate::error::HostError;
use crate::link::Link;
use crate::netlink::route;

/// All interfaces of this network namespace.
pub fn links() -> Result<Vec<Link>, HostError> {
    let mut links = route::links().map_err(HostError::Links)?;
    for link in &mut links {
        link.driver = driver(link);
        // cfg80211 links each of its interfaces to the radio, and each radio to its device (net/wireless/core.c).
        link.is_wifi = link.device().is_some_and(|device| device.join("ieee80211").is_dir());
    }
    Ok(links)
}

fn driver(link: &Link) -> Option<String> {
    let driver = link.device()?.join("driver").read_link().ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The interface with that name.
pub(crate) fn find<'a>(links: &'a [Link], name: &str) -> Result<&'a Link, HostError> {
    let by_name = links.iter().find(|link| link.name == name);
    let by_other = || links.iter().find(|link| link.alternative_names.iter().any(|is| is == name));
    by_name.or_else(by_other).ok_or_else(|| HostError::NoSuchInterface { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LOOPBACK;

    fn named(name: &str) -> Link {
        Link { name: name.to_owned(), ..Link::default() }
    }

    #[test]
    fn other_names_count_after_the_name() {
        let mut other = named("a");
        other.alternative_names = vec!["b".to_owned(), "c".to_owned()];
        let links = [other, named("b")];
        assert_eq!(find(&links, "b").unwrap().name, "b");
        assert_eq!(find(&links, "c").unwrap().name, "a");
        assert!(matches!(find(&links, "d"), Err(HostError::NoSuchInterface { .. })));
    }

    #[test]
    fn loopback_is_always_there() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.hardware_type == LOOPBACK);
        assert!(lo.is_some_and(|lo| lo.index != 0 && !lo.is_physical()), "{links:?}");
    }
}
