//! A data set of many Parquet files, as Hive lays it out, so that engines read several runs at once
//! and leave out what a query does not ask for:
//!
//! ```text
//!  DIR/hash_prefix=0a/eth0-20261121T191206Z-5d0c27e1.parquet
//! ```
//!
//! The prefix is that of the column `hash`: both directions of a connection are in one partition, in
//! every run, so partitions can be joined one by one. Each run has files of its own.

use super::parquet::Parquet;
use super::row::hash;
use super::temporary::Temporary;
use super::{Row, Sink};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Records of one partition that are encoded together. There are many partitions, so few.
const AT_ONCE: usize = 256;

/// Most memory of what is encoded and not yet written, over all partitions, in bytes. Above it the
/// largest is written.
const MEMORY: usize = 64 << 20;

/// Writes each record to the file of its partition.
pub(crate) struct Partitions {
    folder: PathBuf,
    file_name: String,
    digits: u8,
    /// By hash prefix; `None` until its first record.
    files: Vec<Option<Parquet>>,
    /// Memory of each, as of its last encoding, and of all.
    memory: Vec<usize>,
    memory_of_all: usize,
}

impl Partitions {
    /// Files `file_name` in the folders below `folder`, by the first `digits` of the hash.
    pub(super) fn begin(
        folder: &Path,
        file_name: String,
        digits: u8,
    ) -> anyhow::Result<Partitions> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("can't make the folder {}", folder.display()))?;
        // Whether something can be written there is to be known before the run.
        Temporary::beside(&folder.join(&file_name))?;
        let count = 1 << (4 * digits);
        Ok(Partitions {
            folder: folder.to_owned(),
            file_name,
            digits,
            files: std::iter::repeat_with(|| None).take(count).collect(),
            memory: vec![0; count],
            memory_of_all: 0,
        })
    }

    fn new_file(&self, prefix: usize) -> anyhow::Result<Parquet> {
        let digits = usize::from(self.digits);
        let folder = self.folder.join(format!("hash_prefix={prefix:0digits$x}"));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("can't make the folder {}", folder.display()))?;
        Parquet::begin(Temporary::beside(&folder.join(&self.file_name))?, AT_ONCE)
    }

    /// Notes how much memory a partition takes now, and writes the largest if all take too much.
    fn weigh(&mut self, prefix: usize) -> anyhow::Result<()> {
        let now = self.files[prefix].as_ref().map_or(0, Parquet::memory);
        self.memory_of_all = self.memory_of_all + now - self.memory[prefix];
        self.memory[prefix] = now;
        if self.memory_of_all <= MEMORY {
            return Ok(());
        }
        let largest = (0..self.memory.len()).max_by_key(|prefix| self.memory[*prefix]);
        let Some(largest) = largest else { return Ok(()) };
        if let Some(file) = &mut self.files[largest] {
            file.flush()?;
        }
        self.memory_of_all -= self.memory[largest];
        self.memory[largest] = 0;
        Ok(())
    }
}

impl Sink for Partitions {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let prefix = (hash(row.key) >> (64 - 4 * u32::from(self.digits))) as usize;
        let mut file = match self.files[prefix].take() {
            Some(file) => file,
            None => self.new_file(prefix)?,
        };
        let encoded = file.push(row)?;
        self.files[prefix] = Some(file);
        if encoded { self.weigh(prefix) } else { Ok(()) }
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.files.into_iter().flatten().try_for_each(Parquet::complete)
    }
}
