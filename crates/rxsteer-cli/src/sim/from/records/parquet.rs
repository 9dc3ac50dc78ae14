//! Flow records of Parquet files, row by row; only the needed columns are decoded.

use super::{COLUMNS, Damage, Into, Spans, places, span};
use anyhow::Context;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use std::fs::File;

pub(super) fn read(file: File, into: &Into, spans: &mut Spans) -> anyhow::Result<Damage> {
    let reader = SerializedFileReader::new(file)?;
    let schema = reader.metadata().file_metadata().schema();
    let columns = schema.get_fields();
    let position = |name: &str| columns.iter().position(|column| column.name() == name);
    let needed = places(position)?.map(|place| columns[place].clone());
    let projection = Type::group_type_builder(schema.name())
        .with_fields(needed.to_vec())
        .build()
        .context("its columns are of other types")?;
    let rows = match reader.get_row_iter(Some(projection)) {
        Ok(rows) => rows,
        Err(error) => return Ok(Some(error.into())),
    };
    for (row, number) in rows.zip(1u64..) {
        if spans.is_full() {
            break;
        }
        let read = row.map_err(anyhow::Error::from).and_then(|row| {
            let cells = cells(&row);
            span(cells.each_ref().map(String::as_str), into)
        });
        match read {
            Ok(span) => spans.spans.push(span),
            Err(error) => return Ok(Some(error.context(format!("record {number}")))),
        }
    }
    Ok(None)
}

/// The texts of a row's columns, whether they are in the order of the projection or of the file.
fn cells(row: &Row) -> [String; COLUMNS.len()] {
    COLUMNS.map(|column| {
        let cell = row.get_column_iter().find(|(name, _)| *name == column);
        match cell {
            None | Some((_, Field::Null)) => String::new(),
            Some((_, Field::Str(text))) => text.clone(),
            Some((_, other)) => other.to_string(),
        }
    })
}
