//! What is known about drivers beyond what the kernel reports: spare queues, and links that go down for a moment.
//!
//! The source is the drivers' XDP setup functions. Driver versions and NIC models differ, so findings read "known to",
//! and block nothing: the driver itself refuses what it does not support.

/// What a driver is known to do when an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its name in sysfs.
    pub(crate) driver: &'static str,
    /// What it is known to do.
    pub(crate) to: &'static str,
    /// What to do about it; empty if nothing can be done.
    pub(crate) fix: &'static str,
}

const RESETS: &str =
    "reset its queues when a program is attached or taken off: packets are lost for a moment";

/// In alphabetical order.
const KNOWN: &[Known] = &[
    Known {
        driver: "bnxt_en",
        to: "need RX and TX combined in channels and spare TX queues for XDP, refuse LRO and large MTUs, and close \
             and open its queues when a program is attached",
        fix: "if it refuses: ethtool -L IF rx 0 tx 0 combined N with fewer channels, and ethtool -K IF lro off",
    },
    Known {
        driver: "ena",
        to: "need a spare queue for each one in use (at most half of the queues may be used) and an MTU of about 3.5k or less",
        fix: "if it refuses: ethtool -L IF combined N with at most half of what ethtool -l IF calls the maximum",
    },
    Known {
        driver: "gve",
        to: "need a spare TX queue for each RX queue (at most half of the queues may be used)",
        fix: "if it refuses: ethtool -L IF rx N tx N with at most half of what ethtool -l IF calls the maximum",
    },
    Known {
        driver: "hv_netvsc",
        to: "refuse native XDP while LRO is on",
        fix: "if it refuses: ethtool -K IF lro off",
    },
    Known { driver: "i40e", to: RESETS, fix: "" },
    Known {
        driver: "ice",
        to: "set up one more TX queue for each CPU for XDP, and take the link down for a moment when a program is attached",
        fix: "",
    },
    Known { driver: "igb", to: RESETS, fix: "" },
    Known { driver: "igc", to: RESETS, fix: "" },
    Known {
        driver: "ixgbe",
        to: "set up one more TX queue for each CPU for XDP, refuse XDP with SR-IOV or DCB on, and reset the link when a \
             program is attached",
        fix: "if it refuses: turn virtual functions off (echo 0 > /sys/class/net/IF/device/sriov_numvfs)",
    },
    Known {
        driver: "mlx4_core",
        to: "need spare TX queues for XDP and an MTU that fits into a page, and to restart its port when a program \
             is attached",
        fix: "if it refuses: ethtool -L IF tx N with fewer queues",
    },
    Known {
        driver: "mlx5_core",
        to: "refuse native XDP while LRO is on, and reopen its channels when a program is attached",
        fix: "if it refuses: ethtool -K IF lro off",
    },
    Known {
        driver: "virtio_net",
        to: "need one more queue pair for each CPU for XDP (without them XDP works, but sends more slowly), refuse \
             native XDP while the host merges segments or leaves checksums out and that can't be turned off, and \
             reset its \
             queues when a program is attached",
        fix: "if it refuses: turn the guest offloads off at the host (guest_tso4=off,guest_tso6=off,guest_csum=off)",
    },
    Known {
        driver: "vmxnet3",
        to: "refuse native XDP while LRO is on, and reset its queues when a program is attached",
        fix: "if it refuses: ethtool -K IF lro off",
    },
];

/// What is known about a driver.
pub(crate) fn known(driver: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.driver == driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_order() {
        assert!(KNOWN.is_sorted_by(|a, b| a.driver < b.driver));
        assert!(known("ice").is_some());
        assert!(known("nosuch").is_none());
    }
}
