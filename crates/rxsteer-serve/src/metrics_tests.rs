use super::*;
use crate::readings::tests::reading;
use rxsteer_status::testing::sample;
use std::collections::BTreeSet;
use std::time::Instant;

/// The metrics of these statuses, without comments.
fn series(statuses: Vec<Status>, by_process: bool) -> Vec<String> {
    let text = text(&Arc::new(reading(statuses, Instant::now(), 0)), Format::Text, by_process);
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The sample status with this many CPUs and interfaces, all with delays.
fn large(cpus: u16, interfaces: u16) -> Status {
    let mut status = sample();
    status.cpus[0].delay = Some(Delay { buckets: vec![1; 160] });
    status.cpus =
        (0..cpus).map(|cpu| rxsteer_status::CpuStatus { cpu, ..status.cpus[0].clone() }).collect();
    let first = status.interfaces[0].clone();
    let named = |index| InterfaceStatus { name: format!("veth{index}"), ..first.clone() };
    status.interfaces = (0..interfaces).map(named).collect();
    status
}

#[test]
fn series_are_few() {
    for (cpus, interfaces) in [(1, 1), (2, 1), (64, 3), (8, 100)] {
        let series = series(vec![large(cpus, interfaces)], true);
        let limit = 50 + 20 * usize::from(cpus) + 20 * usize::from(interfaces);
        assert!(series.len() <= limit, "{} of {limit}", series.len());
        let distinct: BTreeSet<&str> =
            series.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(distinct.len(), series.len(), "no series is there twice");
        assert!(series.iter().all(|line| line.starts_with("rxsteer_") && !line.contains("flow=")));
    }
    let fixed = series(vec![large(0, 0)], true).len();
    assert!(fixed <= 50, "{fixed}");
}

#[test]
fn values_are_those_of_the_status() {
    let mut status = large(2, 1);
    status.cpus[1].counts.delivered = 12_345_678_901_234;
    status.cpus[1].counts.drops.ring_full = 7;
    status.totals.drops.redirect_errors = 3;
    status.running_ns = 2_500_000_000;
    let series = series(vec![status], false);
    for line in [
        r#"rxsteer_cpu_delivered_packets_total{cpu="1"} 12345678901234.0"#,
        r#"rxsteer_cpu_lost_packets_total{cpu="1"} 7.0"#,
        "rxsteer_redirect_errors_packets_total 3.0",
        "rxsteer_running_seconds 2.5",
        r#"rxsteer_interface_steered{interface="veth0"} 1.0"#,
        r#"rxsteer_instance_info{version="0.2.0",command="run",policy="rfs+sparse",mode="native"} 1"#,
        "rxsteer_instances 1",
        r#"rxsteer_delay_seconds_bucket{le="+Inf"} 320"#,
        "rxsteer_delay_seconds_count 320",
    ] {
        assert!(series.iter().any(|have| have == line), "{line} is not among {series:#?}");
    }
}

#[test]
fn delays_are_below_the_ends_of_their_buckets() {
    let mut status = large(1, 1);
    let mut buckets = vec![0; 160];
    for ns in [1_000, 1_024, 5_000, 2_000_000_000] {
        buckets[Delay::bucket_of(ns)] += 1;
    }
    status.cpus[0].delay = Some(Delay { buckets });
    let series = series(vec![status], false);
    let count = |end: &str| {
        let name = format!("rxsteer_delay_seconds_bucket{{le=\"{end}\"}} ");
        series
            .iter()
            .find_map(|line| line.strip_prefix(&name))
            .unwrap_or_else(|| panic!("{series:#?}"))
            .to_owned()
    };
    assert_eq!(
        [
            count("0.000001024"),
            count("0.000004096"),
            count("0.000016384"),
            count("1.073741824"),
            count("+Inf")
        ],
        ["1", "2", "3", "3", "4"]
    );
    let sum =
        series.iter().find_map(|line| line.strip_prefix("rxsteer_delay_seconds_sum ")).unwrap();
    let sum: f64 = sum.parse().unwrap();
    assert!((1.75..2.25).contains(&sum), "{sum}");
}

#[test]
fn hostile_and_equal_names_are_one_valid_series_each() {
    let mut status = large(1, 3);
    let names = ["a\"} 1\n# EOF", "b\\", "b\\"];
    for (known, name) in status.interfaces.iter_mut().zip(names) {
        known.name = name.to_owned();
    }
    let series = series(vec![status], false);
    let steered: Vec<&String> = series.iter().filter(|line| line.contains("_steered")).collect();
    assert_eq!(
        steered,
        [
            r#"rxsteer_interface_steered{interface="a\"} 1\n# EOF"} 1.0"#,
            r#"rxsteer_interface_steered{interface="b\\"} 2.0"#
        ]
    );
}

#[test]
fn both_formats_say_the_same() {
    let reading = Arc::new(reading(vec![large(2, 1)], Instant::now(), 0));
    let open = text(&reading, Format::OpenMetrics, false);
    let plain = text(&reading, Format::Text, false);
    assert!(open.ends_with("# EOF\n") && plain.ends_with("# EOF\n"));
    for line in [
        "# TYPE rxsteer_cpu_received_packets counter",
        "# UNIT rxsteer_cpu_received_packets packets",
        "# TYPE rxsteer_delay_seconds histogram",
        "# UNIT rxsteer_cpu_thread_ran_seconds seconds",
        "# TYPE rxsteer_instance info",
    ] {
        assert!(open.lines().any(|have| have == line), "{line}: {open}");
    }
    for line in [
        "# TYPE rxsteer_cpu_received_packets_total counter",
        "# HELP rxsteer_cpu_received_packets_total Frames the interface received on this CPU.",
        "# TYPE rxsteer_instance_info gauge",
    ] {
        assert!(plain.lines().any(|have| have == line), "{line}: {plain}");
    }
    let values = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values(&open), values(&plain));
    let accept = |text| Format::accepted(Some(&HeaderValue::from_static(text)));
    let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1";
    assert_eq!(
        (accept(prometheus), accept("*/*"), Format::accepted(None)),
        (Format::OpenMetrics, Format::Text, Format::Text)
    );
}

#[test]
fn instances_are_labelled_only_where_there_can_be_several() {
    let mut other = sample();
    other.pid = 4712;
    let both = series(vec![sample(), other], true);
    assert!(both.iter().any(|line| line.starts_with("rxsteer_changing{pid=\"4712\"}")));
    assert!(series(vec![sample()], false).iter().all(|line| !line.contains("pid=")));
    assert_eq!(series(vec![], true), ["rxsteer_instances 0", "rxsteer_instances_silent 0"]);
}
