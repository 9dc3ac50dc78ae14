//! Records as Parquet, in types that DuckDB, DataFusion, Spark and Arrow all read with the same meaning. Whole
//! numbers are signed: Spark turns unsigned 64-bit numbers into decimals, and differences of unsigned numbers
//! overflow. Times are whole nanoseconds, since Spark refuses nanosecond timestamps.
//!
//! All files have one schema, whatever fields distinguish flows: fields that do not are null. The file's metadata
//! lists the fields that distinguish flows.

use crate::temporary::Temporary;
use crate::{COLUMNS, Row, Sink};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use rxsteer_flows::FlowMask;
use std::fs::File;
use std::sync::Arc;

/// Records of one row group: what a reader reads at once, and about what is kept in memory here.
const ROW_GROUP: usize = 1 << 16;

/// The metadata key for the fields that distinguish flows.
const KEY: &str = "rxsteer.key";

/// Records that are encoded together when there is one file.
const BATCH: usize = 4096;

pub(crate) struct Parquet {
    writer: ArrowWriter<File>,
    /// Records that are not encoded yet.
    rows: Rows,
    file: Temporary,
}

impl Parquet {
    pub(crate) fn begin(file: Temporary, mask: FlowMask) -> anyhow::Result<Parquet> {
        let key = KeyValue::new(KEY.to_owned(), mask.to_string());
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_created_by(concat!("rxsteer ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![key]))
            .build();
        let writer = ArrowWriter::try_new(file.writer()?, schema(), Some(properties))
            .map_err(|error| file.failed(error))?;
        Ok(Parquet { writer, rows: Rows::default(), file })
    }

    /// Takes a record; it is encoded later.
    pub(crate) fn push(&mut self, row: &Row<'_>) {
        self.rows.push(row);
    }

    /// The number of records that are not encoded yet.
    pub(crate) fn waiting(&self) -> usize {
        self.rows.len()
    }

    /// The bytes written, and those of the encoded records that are not.
    pub(crate) fn size(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    /// Writes the waiting records as a separate row group; after that they take no memory.
    pub(crate) fn write_out(&mut self) -> anyhow::Result<()> {
        self.encode()?;
        self.writer.flush().map_err(|error| self.file.failed(error))
    }

    fn encode(&mut self) -> anyhow::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let batch = rows.into_batch().map_err(|error| self.file.failed(error))?;
        self.writer.write(&batch).map_err(|error| self.file.failed(error))
    }

    /// Writes the remaining records. The result still needs its name, and its data may still be on the way to the
    /// disk.
    pub(crate) fn written(mut self) -> anyhow::Result<Temporary> {
        self.encode()?;
        let Parquet { writer, file, .. } = self;
        writer.close().map_err(|error| file.failed(error))?;
        Ok(file)
    }
}

impl Sink for Parquet {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        self.push(row);
        if self.waiting() < BATCH { Ok(()) } else { self.encode() }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.write_out()
    }

    fn bytes(&self) -> u64 {
        self.size() as u64
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        let file = self.written()?;
        file.sync()?;
        file.name()
    }
}

/// Records, column by column.
#[derive(Default)]
struct Rows {
    src: Vec<Option<String>>,
    dst: Vec<Option<String>>,
    protocol: Vec<Option<i32>>,
    src_port: Vec<Option<i32>>,
    dst_port: Vec<Option<i32>>,
    packets: Vec<i64>,
    bytes: Vec<i64>,
    tcp_flags: Vec<i32>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    /// How many CPUs each record has. The counts of the CPUs follow in the next columns, record after record.
    cpus: Vec<usize>,
    cpu: Vec<i32>,
    cpu_packets: Vec<i64>,
    cpu_bytes: Vec<i64>,
    shared_packets: Vec<i64>,
    shared_bytes: Vec<i64>,
    end: Vec<Option<&'static str>>,
    hash: Vec<String>,
    vlan: Vec<Option<i32>>,
    interface: Vec<Option<String>>,
    moves: Vec<i64>,
}

impl Rows {
    fn len(&self) -> usize {
        self.hash.len()
    }

    fn push(&mut self, row: &Row<'_>) {
        let record = row.record;
        let [src, dst] = row.ends();
        self.src.push(src.address.map(|address| address.to_string()));
        self.dst.push(dst.address.map(|address| address.to_string()));
        self.protocol.push(row.protocol().map(i32::from));
        self.src_port.push(src.port.map(i32::from));
        self.dst_port.push(dst.port.map(i32::from));
        self.packets.push(signed(record.totals.packets));
        self.bytes.push(signed(record.totals.bytes));
        self.tcp_flags.push(record.totals.tcp_flags.into());
        self.first_ns.push(signed(record.totals.first_ns));
        self.last_ns.push(signed(record.totals.last_ns));
        let per_cpu = row.per_cpu();
        self.cpus.push(per_cpu.len());
        for cpu in per_cpu {
            self.cpu.push(cpu.cpu.get().into());
            self.cpu_packets.push(signed(cpu.packets));
            self.cpu_bytes.push(signed(cpu.bytes));
        }
        self.shared_packets.push(signed(record.shared.packets));
        self.shared_bytes.push(signed(record.shared.bytes));
        self.end.push(row.end());
        self.hash.push(row.hash());
        self.vlan.push(record.totals.vlan.map(i32::from));
        self.interface.push(row.interface().map(str::to_owned));
        self.moves.push(record.moves.into());
    }

    fn into_batch(self) -> Result<RecordBatch, ArrowError> {
        let i32s = |values: Vec<i32>| -> ArrayRef { Arc::new(Int32Array::from(values)) };
        let i64s = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let fields = |values: Vec<Option<i32>>| -> ArrayRef { Arc::new(Int32Array::from(values)) };
        let offsets = OffsetBuffer::from_lengths(self.cpus);
        let list = |element: FieldRef, values: ArrayRef| -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(ListArray::try_new(element, offsets.clone(), values, None)?))
        };
        let cpu = i32s(self.cpu);
        let counted = vec![cpu.clone(), i64s(self.cpu_packets), i64s(self.cpu_bytes)];
        let counted = Arc::new(StructArray::try_new(counted_fields(), counted, None)?);
        let columns: [ArrayRef; COLUMNS.len()] = [
            Arc::new(StringArray::from(self.src)),
            Arc::new(StringArray::from(self.dst)),
            fields(self.protocol),
            fields(self.src_port),
            fields(self.dst_port),
            i64s(self.packets),
            i64s(self.bytes),
            i32s(self.tcp_flags),
            i64s(self.first_ns),
            i64s(self.last_ns),
            list(element(DataType::Int32), cpu)?,
            list(element(DataType::Struct(counted_fields())), counted)?,
            i64s(self.shared_packets),
            i64s(self.shared_bytes),
            Arc::new(StringArray::from(self.end)),
            Arc::new(StringArray::from(self.hash)),
            fields(self.vlan),
            Arc::new(StringArray::from(self.interface)),
            i64s(self.moves),
        ];
        RecordBatch::try_new(schema(), columns.to_vec())
    }
}

/// Counts stay far below 2⁶³, and no source has a later time.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An element of a list; Parquet prescribes its name.
fn element(of: DataType) -> FieldRef {
    Arc::new(Field::new("element", of, false))
}

/// The counts of one CPU.
fn counted_fields() -> Fields {
    let field = |name, of| Field::new(name, of, false);
    let fields =
        [("cpu", DataType::Int32), ("packets", DataType::Int64), ("bytes", DataType::Int64)];
    fields.map(|(name, of)| field(name, of)).to_vec().into()
}

fn schema() -> Arc<Schema> {
    use DataType::{Int32, Int64, List, Struct, Utf8};
    let types: [DataType; COLUMNS.len()] = [
        Utf8,
        Utf8,
        Int32,
        Int32,
        Int32,
        Int64,
        Int64,
        Int32,
        Int64,
        Int64,
        List(element(Int32)),
        List(element(Struct(counted_fields()))),
        Int64,
        Int64,
        Utf8,
        Utf8,
        Int32,
        Utf8,
        Int64,
    ];
    // Fields that do not distinguish flows are absent, and a flow that has not ended has no end reason. Frames need not
    // have a VLAN tag, and captures do not name interfaces.
    let nullable =
        ["src", "dst", "protocol", "src_port", "dst_port", "end_reason", "vlan", "interface"];
    let fields = COLUMNS.into_iter().zip(types);
    let fields = fields.map(|(name, of)| Field::new(name, of, nullable.contains(&name)));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
