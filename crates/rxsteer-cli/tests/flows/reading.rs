//! Reads records from files of the three formats, for comparisons.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

/// One direction of a flow: source, destination, protocol, ports.
pub(crate) type Key = (IpAddr, IpAddr, u8, u16, u16);

/// The counts of a flow: packets, bytes, TCP flags, first and last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) tcp_flags: u8,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

impl Counted {
    pub(crate) fn add(&mut self, other: Counted) {
        let first = if self.packets == 0 { u64::MAX } else { self.first_ns };
        self.first_ns = first.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp_flags |= other.tcp_flags;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) counted: Counted,
    pub(crate) cpus: Vec<u64>,
    /// CPU, packets, bytes.
    pub(crate) per_cpu: Vec<[u64; 3]>,
    /// Packets and bytes.
    pub(crate) shared: [u64; 2],
    pub(crate) end: String,
    pub(crate) hash: String,
    /// Records of captures have no interface.
    pub(crate) vlan: Option<u16>,
    pub(crate) moves: u64,
}

impl Record {
    /// The properties that every record must have.
    fn check(self) -> Record {
        for (index, total) in [(1, self.counted.packets), (2, self.counted.bytes)] {
            let per_cpu: u64 = self.per_cpu.iter().map(|cpu| cpu[index]).sum();
            assert_eq!(per_cpu + self.shared[index - 1], total, "{self:?}");
        }
        assert!(self.counted.packets > 0, "{self:?}");
        assert!(self.counted.first_ns <= self.counted.last_ns, "{self:?}");
        assert!(self.cpus.is_sorted_by(|a, b| a < b), "{self:?}");
        assert!(self.per_cpu.iter().map(|cpu| cpu[0]).eq(self.cpus.iter().copied()), "{self:?}");
        assert_eq!(self.hash.len(), 16, "{self:?}");
        self
    }
}

/// Adds up all records of each flow.
pub(crate) fn per_flow(records: &[Record]) -> HashMap<Key, Counted> {
    let mut flows: HashMap<Key, Counted> = HashMap::new();
    for record in records {
        flows.entry(record.key).or_default().add(record.counted);
    }
    flows
}

pub(crate) const HEADER: &str = "src,dst,protocol,src_port,dst_port,packets,bytes,tcp_flags,first_ns,\
    last_ns,cpus,per_cpu,shared_packets,shared_bytes,end_reason,hash,vlan,interface,moves";

pub(crate) fn csv(path: &Path) -> Vec<Record> {
    let whole = std::fs::read_to_string(path).expect("a file");
    assert!(whole.ends_with('\n'), "the last line is whole");
    let mut lines = whole.lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines.map(csv_line).collect()
}

fn csv_line(line: &str) -> Record {
    let fields: Vec<&str> = line.split(',').collect();
    let field = |name: &str| {
        let index = HEADER.split(',').position(|column| column == name);
        fields[index.unwrap_or_else(|| panic!("{name} is no column"))]
    };
    let list = |name: &str| field(name).split(';').filter(|part| !part.is_empty());
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text} in {line}"));
    assert_eq!(fields.len(), HEADER.split(',').count(), "{line}");
    let on_cpu = |part: &str| {
        let numbers: Vec<u64> = part.split(':').map(number).collect();
        <[u64; 3]>::try_from(numbers).expect("CPU:packets:bytes")
    };
    Record {
        key: (
            field("src").parse().expect("an address"),
            field("dst").parse().expect("an address"),
            field("protocol").parse().expect("a number"),
            field("src_port").parse().expect("a port"),
            field("dst_port").parse().expect("a port"),
        ),
        counted: Counted {
            packets: number(field("packets")),
            bytes: number(field("bytes")),
            tcp_flags: field("tcp_flags").parse().expect("a byte"),
            first_ns: number(field("first_ns")),
            last_ns: number(field("last_ns")),
        },
        cpus: list("cpus").map(number).collect(),
        per_cpu: list("per_cpu").map(on_cpu).collect(),
        shared: [number(field("shared_packets")), number(field("shared_bytes"))],
        end: field("end_reason").to_owned(),
        hash: field("hash").to_owned(),
        vlan: Some(field("vlan")).filter(|vlan| !vlan.is_empty()).map(|v| number(v) as u16),
        moves: number(field("moves")),
    }
    .check()
}

pub(crate) fn json_lines(path: &Path) -> Vec<Record> {
    let whole = std::fs::read_to_string(path).expect("a file");
    assert!(whole.is_empty() || whole.ends_with('\n'), "the last line is whole");
    whole.lines().map(|line| json(&serde_json::from_str(line).expect("an object"))).collect()
}

/// A record from an object, which may have other fields before it.
pub(crate) fn json(object: &serde_json::Value) -> Record {
    let names: Vec<&String> = object.as_object().expect("an object").keys().collect();
    let columns = HEADER.split(',');
    assert!(
        columns.rev().eq(names
            .into_iter()
            .rev()
            .take(HEADER.split(',').count())
            .map(String::as_str)),
        "{object}"
    );
    let number = |name: &str| super::number(&object[name]);
    let text = |name: &str| object[name].as_str().expect("text").to_owned();
    let list = |name: &str| object[name].as_array().expect("a list").iter();
    let address = |name: &str| text(name).parse().expect("an address");
    let port = |name: &str| u16::try_from(number(name)).expect("a port");
    let byte = |name: &str| u8::try_from(number(name)).expect("a byte");
    let on_cpu =
        |of: &serde_json::Value| ["cpu", "packets", "bytes"].map(|name| super::number(&of[name]));
    Record {
        key: (address("src"), address("dst"), byte("protocol"), port("src_port"), port("dst_port")),
        counted: Counted {
            packets: number("packets"),
            bytes: number("bytes"),
            tcp_flags: byte("tcp_flags"),
            first_ns: number("first_ns"),
            last_ns: number("last_ns"),
        },
        cpus: list("cpus").map(super::number).collect(),
        per_cpu: list("per_cpu").map(on_cpu).collect(),
        shared: [number("shared_packets"), number("shared_bytes")],
        end: text("end_reason"),
        hash: text("hash"),
        vlan: object["vlan"].as_u64().map(|vlan| vlan as u16),
        moves: number("moves"),
    }
    .check()
}

/// Reads with the reader of the parquet crate, with the types that the documentation specifies.
#[cfg(feature = "parquet")]
pub(crate) fn parquet(path: &Path) -> Vec<Record> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let file = std::fs::File::open(path).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let schema = reader.schema().clone();
    assert!(schema.fields().iter().map(|field| field.name().as_str()).eq(HEADER.split(',')));
    let mut records = Vec::new();
    for batch in reader.build().expect("it can be read") {
        let batch = batch.expect("rows");
        let column = |name: &str| batch.column_by_name(name).expect("a column");
        for row in 0..batch.num_rows() {
            let text = |name: &str| column(name).as_string::<i32>().value(row).to_owned();
            let small = |name: &str| column(name).as_primitive::<Int32Type>().value(row);
            let large = |name: &str| {
                let value = column(name).as_primitive::<Int64Type>().value(row);
                u64::try_from(value).expect("a count")
            };
            let cpus = column("cpus").as_list::<i32>().value(row);
            let cpus = cpus.as_primitive::<Int32Type>().values().iter();
            let per_cpu = column("per_cpu").as_list::<i32>().value(row);
            let per_cpu = per_cpu.as_struct();
            let on_cpu = |index: usize| {
                let cpu = per_cpu.column(0).as_primitive::<Int32Type>().value(index);
                let counts = [1, 2].map(|column| {
                    per_cpu.column(column).as_primitive::<Int64Type>().value(index) as u64
                });
                [cpu as u64, counts[0], counts[1]]
            };
            let record = Record {
                key: (
                    text("src").parse().expect("an address"),
                    text("dst").parse().expect("an address"),
                    small("protocol").try_into().expect("a byte"),
                    small("src_port").try_into().expect("a port"),
                    small("dst_port").try_into().expect("a port"),
                ),
                counted: Counted {
                    packets: large("packets"),
                    bytes: large("bytes"),
                    tcp_flags: small("tcp_flags").try_into().expect("a byte"),
                    first_ns: large("first_ns"),
                    last_ns: large("last_ns"),
                },
                cpus: cpus.map(|cpu| u64::try_from(*cpu).expect("a CPU")).collect(),
                per_cpu: (0..arrow_array::Array::len(per_cpu)).map(on_cpu).collect(),
                shared: [large("shared_packets"), large("shared_bytes")],
                end: text("end_reason"),
                hash: text("hash"),
                vlan: arrow_array::Array::is_valid(column("vlan"), row)
                    .then(|| small("vlan") as u16),
                moves: large("moves"),
            };
            records.push(record.check());
        }
    }
    records
}
