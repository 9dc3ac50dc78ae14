use super::*;
use crate::block::FrameMeta;
use crate::source::capture::{CaptureOptions, CaptureSource};
use crate::source::synthetic::SyntheticSource;
use crate::source::{Fill, Source};
use crate::{Block, PipelineConfig, Report, Speed, run};
use rxsteer_core::Policy;
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sends `spec`'s packets through `cpus` CPUs into `out`.
fn written(spec: &str, out: &str, on_full: OnFull) -> (Report<Sink>, SinkCounts) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut config = PipelineConfig::new(Policy::Rps, "0-2".parse().unwrap());
    (config.on_full, config.pin) = (OnFull::Wait, false);
    let mut sinks =
        Sinks::open(&out.parse().unwrap(), &config.workers(), on_full, &stop, |_| {}).unwrap();
    let counts = sinks.counts();
    let mut source = [SyntheticSource::new(spec.parse().unwrap(), 1, (0, 1))];
    let report =
        run(&config, &mut source, Speed::Max, &stop, |cpu| sinks.take(cpu), |_, _| {}).unwrap();
    (report, counts)
}

/// Every frame that a source has: time, length on the wire, bytes.
fn frames(source: &mut dyn Source) -> Vec<(u64, u32, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        let frame =
            |meta: &FrameMeta| (meta.timestamp_ns, meta.wire_len, block.bytes_of(meta).to_vec());
        all.extend(block.frames().iter().map(frame));
        if fill == Fill::End {
            return all;
        }
    }
}

fn read_back(path: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    let mut source = CaptureSource::open(&[path.to_path_buf()], CaptureOptions::default()).unwrap();
    let frames = frames(&mut source);
    assert!(source.take_issues().is_empty(), "{}", path.display());
    frames
}

#[test]
fn files_hold_every_frame_once_and_each_flow_in_order() {
    let spec = "packets=20000,flows=50,size=60-1514";
    let mut expected = frames(&mut SyntheticSource::new(spec.parse().unwrap(), 1, (0, 1)));
    for ending in ["pcap", "pcap.zst"] {
        let folder = tempfile::tempdir().unwrap();
        let out = format!("pcap:{}/new/%d.{ending}", folder.path().display());
        let (report, counts) = written(spec, &out, OnFull::Wait);
        drop(report);
        let mut all = Vec::new();
        for file in counts.report() {
            let read = read_back(Path::new(&file.name));
            assert_eq!((read.len() as u64, file.dropped(), &file.error), (file.written, 0, &None));
            assert_eq!(
                read.iter().map(|(_, _, frame)| frame.len() as u64).sum::<u64>(),
                file.bytes
            );
            // One RX queue, and flows that stay: each file is in the order of arrival.
            assert!(read.is_sorted_by_key(|(time, _, _)| *time), "{ending}");
            all.extend(read);
        }
        all.sort();
        expected.sort();
        assert!(all == expected, "{ending}: {} of {} frames", all.len(), expected.len());
    }
}

#[test]
fn header_says_nanoseconds_link_type_and_longest_frame() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("pcap:{}/%d.pcap", folder.path().display());
    drop(written("packets=0", &out, OnFull::Wait));
    let words: Vec<u32> = fs::read(folder.path().join("0.pcap"))
        .unwrap()
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    let version = u32::from_ne_bytes({
        let [major, minor] = [2_u16, 4].map(u16::to_ne_bytes);
        [major[0], major[1], minor[0], minor[1]]
    });
    assert_eq!(words, [0xa1b2_3c4d, version, 0, 0, 262_144, 1]);
}

#[test]
fn times_that_do_not_fit_become_the_last_that_does() {
    let record = |timestamp_ns| {
        let mut block = Block::new();
        let info = crate::FrameInfo::new(LinkType::Ethernet, timestamp_ns, 60);
        assert!(block.push(&[0; 60], info));
        let header = pcap::record_header(&block.frames()[0]);
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        (word(0), word(4), word(8), word(12))
    };
    assert_eq!(record(1_000_000_007), (1, 7, 60, 60));
    assert_eq!(record(crate::block::MAX_TIME_NS), (u32::MAX, 999_999_999, 60, 60));
}

#[test]
fn full_disk_is_reported_and_counted_and_other_files_go_on() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["pcap", "pcap.zst"] {
        std::os::unix::fs::symlink("/dev/full", folder.path().join(format!("1.{ending}"))).unwrap();
        let out = format!("pcap:{}/%d.{ending}", folder.path().display());
        let (report, counts) = written("packets=30000,flows=60", &out, OnFull::Wait);
        let packets: HashMap<_, _> =
            report.per_cpu.iter().map(|cpu| (cpu.cpu, cpu.packets)).collect();
        drop(report);
        for file in counts.report() {
            assert_eq!(file.written + file.dropped(), packets[&file.cpu], "{ending}");
            let is_full = file.cpu.get() == 1;
            let expected = if is_full { (0, packets[&file.cpu]) } else { (packets[&file.cpu], 0) };
            assert_eq!((file.written, file.drops[SinkDrop::Failed as usize]), expected, "{ending}");
            assert_eq!(
                file.error.as_deref().is_some_and(|e| e.contains("no room for more")),
                is_full
            );
        }
    }
}

#[test]
fn file_that_can_hold_no_more_ends_with_a_whole_frame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let counts = Counts::default();
    let mut stream = stream::Stream::new(fs::File::create(&path).unwrap());
    let mut block = Block::new();
    assert!(block.push(&[7; 100], crate::FrameInfo::new(LinkType::Ethernet, 0, 100)));
    let header = pcap::record_header(&block.frames()[0]);
    stream.push_header(&pcap::file_header(LinkType::Ethernet));
    stream.push(&header, &[7; 100]);
    assert_eq!(stream.flush(&counts).unwrap(), stream::Flushed::All);
    // As after a write that took the first frame and a part of the second.
    stream.push(&header, &[7; 100]);
    stream.push(&header, &[7; 100]);
    stream.send_only(150);
    stream.give_up(&counts, SinkDrop::Failed);
    let report =
        counts.report("0".parse().map(|id| rxsteer_core::CpuId::new(id).unwrap()).unwrap(), "file");
    assert_eq!((report.written, report.dropped()), (2, 1));
    assert_eq!(fs::metadata(&path).unwrap().len(), 24 + 2 * 116);
}

/// Reads all that comes through a pipe, `pause` after each piece.
fn reader(path: PathBuf, pause: Duration) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !path.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut pipe, mut all) = (fs::File::open(&path).unwrap(), Vec::new());
        let mut piece = vec![0; 65536];
        loop {
            match pipe.read(&mut piece).unwrap() {
                0 => return all,
                read => all.extend_from_slice(&piece[..read]),
            }
            std::thread::sleep(pause);
        }
    })
}

#[test]
fn pipes_carry_whole_streams_and_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |cpu: usize| folder.path().join(format!("pipe{cpu}"));
    let readers: Vec<_> = (0..3).map(|cpu| reader(path(cpu), Duration::ZERO)).collect();
    let out = format!("pipe:{}/pipe%d", folder.path().display());
    let (report, counts) = written("packets=20000,flows=50,size=imix", &out, OnFull::Wait);
    drop(report);
    for (cpu, (reader, report)) in readers.into_iter().zip(counts.report()).enumerate() {
        let copy = folder.path().join(format!("{cpu}.pcap"));
        fs::write(&copy, reader.join().unwrap()).unwrap();
        assert_eq!(read_back(&copy).len() as u64, report.written);
        assert_eq!((report.dropped(), report.error), (0, None));
        assert!(!path(cpu).exists(), "it was made here");
    }
}

#[test]
fn slow_reader_gets_whole_frames_and_the_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |cpu: usize| folder.path().join(format!("pipe{cpu}"));
    let pause = |cpu| Duration::from_millis(if cpu == 1 { 20 } else { 0 });
    let readers: Vec<_> = (0..3).map(|cpu| reader(path(cpu), pause(cpu))).collect();
    let out = format!("pipe:{}/pipe%d", folder.path().display());
    let (report, counts) = written("packets=30000,flows=50,size=1514", &out, OnFull::Drop);
    let delivered = report.delivered;
    drop(report);
    let mut sum = 0;
    for (cpu, (reader, report)) in readers.into_iter().zip(counts.report()).enumerate() {
        let copy = folder.path().join(format!("{cpu}.pcap"));
        fs::write(&copy, reader.join().unwrap()).unwrap();
        assert_eq!(read_back(&copy).len() as u64, report.written, "no frame is cut in two");
        assert_eq!(report.dropped(), report.drops[SinkDrop::NoRoom as usize]);
        sum += report.written + report.dropped();
    }
    assert_eq!(sum, delivered);
}

#[test]
fn reader_that_goes_away_is_reported_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |cpu: usize| folder.path().join(format!("pipe{cpu}"));
    let mut readers: Vec<_> = [0, 2].map(|cpu| reader(path(cpu), Duration::ZERO)).into();
    let (gone, opened) = (path(1), path(1));
    readers.push(std::thread::spawn(move || {
        while !gone.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut first = [0; 24];
        fs::File::open(opened).unwrap().read_exact(&mut first).unwrap();
        first.to_vec()
    }));
    let out = format!("pipe:{}/pipe%d", folder.path().display());
    let (report, counts) = written("packets=30000,flows=50,size=1514", &out, OnFull::Wait);
    let packets: u64 = report.per_cpu[1].packets;
    drop(report);
    readers.into_iter().for_each(|reader| drop(reader.join().unwrap()));
    let reports = counts.report();
    assert!(reports[1].error.as_deref().unwrap().contains("its reader is gone"));
    assert_eq!(reports[1].written + reports[1].dropped(), packets);
    assert!(reports[1].drops[SinkDrop::Failed as usize] > 0);
    assert_eq!(reports[0].dropped() + reports[2].dropped(), 0);
}

#[test]
fn nothing_is_opened_where_one_can_not_be() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let open = |spec: String, stop: &Arc<AtomicBool>, waiting: &mut Vec<String>| {
        let cpus = "0-1".parse().unwrap();
        let keep = |names: &[&str]| waiting.extend(names.iter().map(ToString::to_string));
        Sinks::open(&spec.parse().unwrap(), &cpus, OnFull::Wait, stop, keep)
            .unwrap_err()
            .to_string()
    };
    let mut waiting = Vec::new();
    let in_folder = |name: &str| format!("{}/{name}", folder.path().display());
    assert!(
        open(format!("pcap:{}", in_folder("a/b/%d.pcap")), &stop, &mut waiting)
            .contains("create its folder")
    );
    fs::write(in_folder("p1"), "a file").unwrap();
    assert!(
        open(format!("pipe:{}", in_folder("p%d")), &stop, &mut waiting).contains("is not a pipe")
    );
    assert!(!Path::new(&in_folder("p0")).exists(), "the one that was made is removed");
    assert_eq!(
        open("veth:no-such-%d".to_owned(), &stop, &mut waiting),
        "no-such-0: there is no such interface; make it, or check the name"
    );
    stop.store(true, Ordering::Relaxed);
    assert!(
        open(format!("pipe:{}", in_folder("q%d")), &stop, &mut waiting)
            .contains("before any program had opened")
    );
    assert_eq!(waiting, [in_folder("q0"), in_folder("q1")]);
}
