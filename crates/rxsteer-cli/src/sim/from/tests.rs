use super::*;
use clap::Parser;
use rxsteer_sim::scenario::Load;
use std::fs;

/// The options as they are typed.
#[derive(Debug, Parser)]
struct Typed {
    scenario: Option<String>,
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    from: FromArgs,
}

fn typed(words: &[&str]) -> Result<FromArgs, String> {
    let words = ["sim"].iter().chain(words);
    Typed::try_parse_from(words).map(|typed| typed.from).map_err(|error| error.to_string())
}

fn read(words: &[&str]) -> anyhow::Result<FromFiles> {
    Ok(typed(words).expect("options").read(1)?.expect("files are named"))
}

const HEADER: &str = "src,dst,protocol,src_port,dst_port,packets,bytes,tcp_flags,first_ns,last_ns,\
    cpus,per_cpu,shared_packets,shared_bytes,end_reason,hash\n";

fn line(port: u16, packets: u64, first_ns: u64) -> String {
    format!(
        "10.0.0.1,192.0.2.7,17,{port},443,{packets},{},2,{first_ns},{},0,0:1:1,0,0,idle,00\n",
        packets * 60,
        first_ns + 1000
    )
}

/// A pcap with frames at these microseconds, each with a UDP packet from its port.
fn pcap(frames: &[(u32, u16)]) -> Vec<u8> {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        pcap.extend(word.to_le_bytes());
    }
    for (micros, port) in frames {
        let mut frame = Vec::new();
        let ethernet = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let udp = ethernet.ipv4([10, 0, 0, 1], [192, 0, 2, 7], 64).udp(*port, 443);
        udp.write(&mut frame, &[0; 22]).expect("a frame");
        for word in [0, *micros, frame.len() as u32, frame.len() as u32] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(frame);
    }
    pcap
}

#[test]
fn options_say_what_is_wrong_with_them() {
    assert!(typed(&["--from-speed", "2x"]).unwrap_err().contains("--from"));
    for bad in ["0", "-1x", "x", "nan", "inf", "1e10"] {
        let error = typed(&["--from", "a", "--from-speed", bad]).unwrap_err();
        assert!(error.contains("ten times as fast"), "{bad}: {error}");
    }
    assert!(typed(&["--list", "--from", "a"]).is_err());
    let args = typed(&["--from", "a", "b.csv", "--from-speed", "2.5"]).unwrap();
    assert_eq!((args.from.len(), args.from_speed), (2, 2.5));
    assert!(typed(&[]).unwrap().read(1).unwrap().is_none());
}

#[test]
fn records_and_the_capture_of_the_same_packets_agree() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let capture = file("a.pcap", &pcap(&[(5, 1000), (6, 1000), (6, 2000)]));
    let lines = [line(1000, 2, 5000), line(2000, 1, 6000)].concat();
    let records = file("a.csv", format!("{HEADER}{lines}").as_bytes());
    let (capture, records) =
        (read(&["--from", &capture]).unwrap(), read(&["--from", &records]).unwrap());
    assert_eq!(capture.figures.packets, 3);
    let bytes = |of: &FromFiles| of.recorded.packets.iter().map(|p| p.bytes).collect::<Vec<_>>();
    assert_eq!((records.figures.packets, bytes(&records)), (3, vec![60; 3]));
    assert_eq!(bytes(&capture), [64; 3]);
    assert_eq!(capture.recorded.hashes, records.recorded.hashes, "as the same flows have");
    let times = |of: &FromFiles| of.recorded.packets.iter().map(|p| p.at_ns).collect::<Vec<_>>();
    assert_eq!(times(&capture), times(&records)); // The record of one packet has no time in between.
    assert!(records.notes().iter().any(|note| note.contains("evenly")), "{:?}", records.notes());
}

#[test]
fn all_formats_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("a.csv");
    fs::write(&csv, format!("{HEADER}{}{}", line(1, 9, 0), line(2, 3, 700))).unwrap();
    let jsonl = dir.path().join("a.jsonl");
    let object = |port: u16, packets: u64, first_ns: u64| {
        serde_json::json!({
            "src": "10.0.0.1", "dst": "192.0.2.7", "protocol": 17, "src_port": port, "dst_port": 443,
            "packets": packets, "bytes": packets * 60, "first_ns": first_ns, "last_ns": first_ns + 1000,
        })
    };
    fs::write(&jsonl, format!("{}\n{}\n", object(1, 9, 0), object(2, 3, 700))).unwrap();
    let both = [csv, jsonl].map(|path| read(&["--from", path.to_str().unwrap()]).unwrap());
    assert_eq!(both[0].recorded, both[1].recorded);
    assert_eq!((both[0].figures.packets, both[0].figures.flows, both[0].records), (12, 2, 2));
}

#[test]
fn what_comes_before_damage_is_used_and_the_damage_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    for (name, good, bad, word) in [
        ("a.csv", format!("{HEADER}{}", line(1, 2, 5)), "10.0.0.1,x,6,1,2,3,4,5\n", "record"),
        ("b.csv", format!("{HEADER}{}", line(1, 2, 5)), &line(1, 0, 5), "line 3"),
        ("c.csv", format!("{HEADER}{}", line(1, 2, 5)), &line(1, 1, 5).replace("192", "x"), "dst"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, format!("{good}{bad}{}", line(3, 1, 5))).unwrap();
        let from = read(&["--from", path.to_str().unwrap()]).unwrap();
        assert_eq!(from.figures.packets, 2, "{name}");
        assert!(from.issues.len() == 1 && from.issues[0].contains(word), "{:?}", from.issues);
    }
    let mut cut = pcap(&[(5, 1), (6, 2)]);
    cut.truncate(cut.len() - 1);
    let path = dir.path().join("cut.pcap");
    fs::write(&path, cut).unwrap();
    let from = read(&["--from", path.to_str().unwrap()]).unwrap();
    assert_eq!((from.figures.packets, from.issues.len()), (1, 1));
    assert!(from.issues[0].contains("cut short"), "{:?}", from.issues);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, reason) in [
        ("a.csv", "x,y\n1,2\n", "no column src"),
        ("b.csv", HEADER, "no packet"),
        ("c.jsonl", "{\"src\": null}\n", "no field dst"),
        ("d.jsonl", "nonsense\n", "line 1"),
        ("e.parquet", "PAR1", "flow records"),
        ("f.txt", "hello", "f.txt"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", read(&["--from", path.to_str().unwrap()]).unwrap_err());
        assert!(error.contains(reason) && error.contains(name), "{name}: {error}");
    }
    let error = format!("{:#}", read(&["--from", "nowhere.csv"]).unwrap_err());
    assert!(error.contains("nowhere.csv"), "{error}");
}

#[test]
fn limit_is_kept_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, format!("{HEADER}{}", line(1, 1_000_000_000_000, 5))).unwrap();
    let path = path.to_str().unwrap();
    let from = read(&["--from", path, "--from-packets", "100", "--from-spread", "random"]).unwrap();
    assert_eq!((from.figures.packets, from.figures.more), (100, true));
    assert!(from.notes().iter().any(|note| note.contains("more than 100 packets")));
    assert_eq!(from.json()["more_packets_left_out"], true);
    let scenario =
        rxsteer_sim::file::builtin::find(DEFAULT_SCENARIO).unwrap().scenario(&[]).unwrap();
    let (scenario, _) = from.replace(&scenario).unwrap();
    assert!(
        matches!(&scenario.traffic[0].load, Load::Recorded(recorded) if recorded.hashes.len() == 1)
    );
    assert_eq!(scenario.traffic[0].name, "a.csv");
}
