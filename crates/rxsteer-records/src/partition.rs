//! A data set of many Parquet files in Hive's layout. Engines can read several runs at once and skip the files
//! that a query does not need:
//!
//! ```text
//!  DIR/hash_prefix=0a/eth0-20261121T191206Z-5d0c27e1.parquet
//! ```
//!
//! The prefix is that of the column `hash`. In every run, both directions of a connection are in the same
//! partition, so partitions can be joined one by one. Each run has its own files.

use crate::parquet::Parquet;
use crate::row::hash;
use crate::temporary::{Temporary, advice};
use crate::{Row, Sink};
use anyhow::anyhow;
use rxsteer_flows::FlowMask;
use rxsteer_user::shown;
use std::path::{Path, PathBuf};

/// The largest number of records that wait to be encoded, over all partitions. When this number is reached, the
/// partition with most of them is written. A row group should be large, and there are many partitions.
const WAITING: usize = 1 << 18;

/// Writes each record to the file of its partition.
pub(crate) struct Partitions {
    folder: PathBuf,
    file_name: String,
    mask: FlowMask,
    digits: u8,
    /// Indexed by hash prefix; `None` until the first record.
    files: Vec<Option<Parquet>>,
    /// Records that wait to be encoded, in all files together.
    waiting: usize,
    /// Declared last, so that it is dropped after the files: folders that should be removed are empty then.
    made: Made,
}

/// Folders that this run created. Folders that are empty at the end are removed.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Ensures that a folder exists.
    fn folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        let new = !folder.exists();
        std::fs::create_dir_all(folder).map_err(|error| {
            anyhow!("can't make the folder {}: {error}{}", shown(folder), advice(&error))
        })?;
        if new {
            self.0.push(folder.to_owned());
        }
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // `remove_dir` removes only empty folders.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

impl Partitions {
    /// Creates files `file_name` in folders below `folder`, by the first `digits` digits of the hash.
    pub(crate) fn begin(
        folder: &Path,
        file_name: String,
        mask: FlowMask,
        digits: u8,
    ) -> anyhow::Result<Partitions> {
        let mut made = Made::default();
        made.folder(folder)?;
        // This checks before the run that files can be written there.
        Temporary::for_path(&folder.join(&file_name))?;
        let count = 1 << (4 * digits);
        Ok(Partitions {
            folder: folder.to_owned(),
            file_name,
            mask,
            digits,
            files: std::iter::repeat_with(|| None).take(count).collect(),
            waiting: 0,
            made,
        })
    }

    fn new_file(&mut self, prefix: usize) -> anyhow::Result<Parquet> {
        let digits = usize::from(self.digits);
        let folder = self.folder.join(format!("hash_prefix={prefix:0digits$x}"));
        self.made.folder(&folder)?;
        Parquet::begin(Temporary::for_path(&folder.join(&self.file_name))?, self.mask)
    }

    /// Writes the partition with the most waiting records.
    fn write_largest(&mut self) -> anyhow::Result<()> {
        let largest = self.files.iter_mut().flatten().max_by_key(|file| file.waiting());
        let Some(file) = largest else { return Ok(()) };
        self.waiting -= file.waiting();
        file.write_out()
    }
}

impl Sink for Partitions {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let prefix = (hash(row.key) >> (64 - 4 * u32::from(self.digits))) as usize;
        let mut file = match self.files[prefix].take() {
            Some(file) => file,
            None => self.new_file(prefix)?,
        };
        file.push(row);
        self.files[prefix] = Some(file);
        self.waiting += 1;
        if self.waiting < WAITING { Ok(()) } else { self.write_largest() }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.waiting = 0;
        self.files.iter_mut().flatten().try_for_each(Parquet::write_out)
    }

    fn bytes(&self) -> u64 {
        self.files.iter().flatten().map(|file| file.size() as u64).sum()
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        // Bound to a name, so that it is dropped last.
        let Partitions { files, made: _made, .. } = *self;
        let files = files.into_iter().flatten();
        // This does not wait for the disk: with hundreds of files that would take longer than all other work. All
        // steps that can fail come first, so that either all files of a run get their names or none.
        let written: Vec<Temporary> = files.map(Parquet::written).collect::<Result<_, _>>()?;
        written.into_iter().try_for_each(Temporary::name)
    }
}
