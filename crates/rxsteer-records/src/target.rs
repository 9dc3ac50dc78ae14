//! `--flows FILE`: the destination and the format of records. All errors that can be detected in advance are
//! reported before the run.

use crate::Sink;
use crate::csv::Csv;
use crate::json_lines::JsonLines;
use crate::temporary::{Temporary, folder_of, place_of};
use anyhow::{anyhow, bail, ensure};
use rxsteer_flows::FlowMask;
use rxsteer_user::shown;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

/// `--partition-by`: the number of files of a data set, and how records are assigned to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionBy {
    /// The number of hex digits of the hash.
    digits: u8,
}

impl PartitionBy {
    /// The words for the setting.
    pub const WORDS: [&str; 2] = ["hash-prefix", "hash-prefix:1"];
}

impl FromStr for PartitionBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "hash-prefix" | "hash-prefix:2" => Ok(PartitionBy { digits: 2 }),
            "hash-prefix:1" => Ok(PartitionBy { digits: 1 }),
            _ => Err(format!(
                "unknown partitioning '{text}'; use hash-prefix (256 partitions) or \
                 hash-prefix:1 (16)"
            )),
        }
    }
}

impl std::fmt::Display for PartitionBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hash-prefix:{}", self.digits)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
    Parquet,
}

/// The destination of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One file.
    File(File),
    /// A folder of a data set, with files for this run.
    DataSet(DataSet),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    path: PathBuf,
    format: Format,
    /// What stands in the name before the extension, in a rotation: when the file began, and its number.
    mark: Option<(String, u32)>,
    /// The number of the last file that got its name. One without records gets none, and the next one has its number.
    last: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    folder: PathBuf,
    by: PartitionBy,
    /// The name of the replayed input, if it may be known; files of a data set begin with it.
    input: Option<String>,
    /// A text that distinguishes this run from all others, on this machine and on others.
    run: String,
}

impl Target {
    /// The target for `--flows` and `--partition-by`, for the records of `input`. With `None`, file names must not
    /// reveal the input.
    pub fn new(
        path: &Path,
        partition_by: Option<PartitionBy>,
        input: Option<&Path>,
    ) -> anyhow::Result<Target> {
        let name = shown(path);
        ensure!(
            path != Path::new("-"),
            "flow records can't go to standard output, which has the report; name a file that ends \
             in .csv, .jsonl or .parquet"
        );
        if let Some(by) = partition_by {
            ensure!(parquet(), WITHOUT_PARQUET);
            let ending = ending(path);
            ensure!(
                !matches!(ending.as_str(), "csv" | "jsonl" | "ndjson"),
                "with --partition-by, --flows names a folder of Parquet files, but {name} looks like one file of \
                 another format; omit --partition-by, or name a folder without .{ending}"
            );
            ensure!(
                !path.exists() || path.is_dir(),
                "{name} is a file; with --partition-by, --flows names the folder of a data set"
            );
            let (folder, input) = (path.to_owned(), input.map(stem));
            return Ok(Target::DataSet(DataSet { folder, by, input, run: run(SystemTime::now()) }));
        }
        ensure!(
            !path.is_dir() && !path.as_os_str().as_encoded_bytes().ends_with(b"/"),
            "{name} is a folder; name a file in it, or add --partition-by hash-prefix to make it a \
             data set of Parquet files"
        );
        let format = match ending(path).as_str() {
            "csv" => Format::Csv,
            "jsonl" | "ndjson" => Format::JsonLines,
            "parquet" if parquet() => Format::Parquet,
            "parquet" => bail!(WITHOUT_PARQUET),
            _ => bail!(
                "the name {name} does not show the format of flow records; it must end in .csv, \
                 .jsonl (or .ndjson) or .parquet"
            ),
        };
        let folder = folder_of(path);
        ensure!(
            folder.is_dir(),
            "there is no folder {} for {name}; create it first",
            shown(folder)
        );
        // An existing file is replaced, so it must not be a device.
        place_of(path).map_err(|why| anyhow!("{name} {why}; name another"))?;
        Ok(Target::File(File { path: path.to_owned(), format, mark: None, last: 0 }))
    }

    /// Opens the target for records of flows distinguished by `mask`. No file gets its final name before it is
    /// complete.
    pub(crate) fn open(&self, mask: FlowMask) -> anyhow::Result<Box<dyn Sink>> {
        match self {
            Target::File(file @ File { format, .. }) => {
                let file = match file.mark {
                    None => Temporary::for_path(&file.path)?,
                    Some(_) => Temporary::without_replacing(&file.place())?,
                };
                Ok(match format {
                    Format::Csv => Box::new(Csv::begin(file)?),
                    Format::JsonLines => Box::new(JsonLines::begin(file)?),
                    Format::Parquet => parquet_file(file, mask)?,
                })
            }
            Target::DataSet(data_set) => data_set.open(mask),
        }
    }

    /// How a report names the output after `records` records were written; a data set without records has no file.
    pub(crate) fn written(&self, records: u64) -> Option<String> {
        match self {
            Target::File(file) => Some(file.path.display().to_string()),
            Target::DataSet(_) if records == 0 => None,
            Target::DataSet(data_set) => {
                Some(format!("{}/*/{}", data_set.folder.display(), data_set.file_name()))
            }
        }
    }

    /// From now on, files are of a later part of the run, which begins at `now`. Their names say so: no earlier file is
    /// replaced.
    pub(crate) fn next(&mut self, now: SystemTime) {
        let time = readable(now);
        match self {
            Target::File(file) => {
                let mut number = file.last;
                loop {
                    number = number.wrapping_add(1);
                    file.mark = Some((time.clone(), number));
                    if !file.place().exists() {
                        break;
                    }
                }
            }
            Target::DataSet(data_set) => data_set.run = run(now),
        }
    }

    /// The present file got its name.
    pub(crate) fn has_its_name(&mut self) {
        if let Target::File(File { mark: Some((_, number)), last, .. }) = self {
            *last = *number;
        }
    }

    /// How a report names the files of a rotation.
    pub(crate) fn pattern(&self) -> Option<String> {
        Some(match self {
            Target::File(file) => file.marked("*").display().to_string(),
            Target::DataSet(data_set) => {
                format!("{}/*/{}-*.parquet", data_set.folder.display(), data_set.begin())
            }
        })
    }

    /// A note for the user before a run over captures: their packets may have been recorded before.
    pub fn note(&self) -> Option<String> {
        let Target::DataSet(data_set) = self else { return None };
        let earlier = data_set.earlier_runs();
        let last = earlier.last()?;
        let runs = match earlier.len() {
            1 => "an earlier run".to_owned(),
            count => format!("{count} earlier runs"),
        };
        let (shown, folder) = (shown(&data_set.folder), quoted(&data_set.folder));
        Some(match &data_set.input {
            Some(input) => format!(
                "{shown} already has records of {runs} of '{input}', and this run adds its own. If they \
                 cover the same packets, remove the earlier ones: find {folder} -name \
                 '{input}-{ANY_RUN}.parquet' ! -name '*-{}.parquet' -delete",
                data_set.run
            ),
            None => format!(
                "{shown} already has records of {runs} with --anonymize, and this run adds its own. Their \
                 names do not show the capture. If a run covers the same packets, remove it: rm \
                 {folder}/*/{last} (the last one)"
            ),
        })
    }
}

impl File {
    /// The path of the present file.
    fn place(&self) -> PathBuf {
        match &self.mark {
            None => self.path.clone(),
            Some((time, number)) => self.marked(&format!("{time}-{number:06}")),
        }
    }

    /// The path with `mark` before the extension.
    fn marked(&self, mark: &str) -> PathBuf {
        let [stem, ending] = [self.path.file_stem(), self.path.extension()]
            .map(|part| part.unwrap_or_default().to_string_lossy());
        self.path.with_file_name(format!("{stem}-{mark}.{ending}"))
    }
}

impl DataSet {
    fn file_name(&self) -> String {
        format!("{}-{}.parquet", self.begin(), self.run)
    }

    fn begin(&self) -> &str {
        self.input.as_deref().unwrap_or(NEUTRAL)
    }

    /// The file names of earlier runs whose input has the same name: each name once, the last run last.
    fn earlier_runs(&self) -> BTreeSet<String> {
        let begin = format!("{}-", self.begin());
        let names = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let files = names(&self.folder).into_iter().flat_map(|partition| names(&partition));
        let files = files.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        files
            .filter(|name| {
                let run = name.strip_prefix(&begin).and_then(|run| run.strip_suffix(".parquet"));
                run.is_some_and(|run| run.len() == self.run.len())
            })
            .collect()
    }

    #[cfg(feature = "parquet")]
    fn open(&self, mask: FlowMask) -> anyhow::Result<Box<dyn Sink>> {
        let (name, digits) = (self.file_name(), self.by.digits);
        let files = crate::partition::Partitions::begin(&self.folder, name, mask, digits)?;
        Ok(Box::new(files))
    }

    #[cfg(not(feature = "parquet"))]
    fn open(&self, _: FlowMask) -> anyhow::Result<Box<dyn Sink>> {
        bail!(WITHOUT_PARQUET)
    }
}

const WITHOUT_PARQUET: &str = "this rxsteer was built without Parquet; build it with the feature \
    'parquet', which is on by default, or write .csv or .jsonl";

const fn parquet() -> bool {
    cfg!(feature = "parquet")
}

#[cfg(feature = "parquet")]
fn parquet_file(file: Temporary, mask: FlowMask) -> anyhow::Result<Box<dyn Sink>> {
    Ok(Box::new(crate::parquet::Parquet::begin(file, mask)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet_file(_: Temporary, _: FlowMask) -> anyhow::Result<Box<dyn Sink>> {
    bail!(WITHOUT_PARQUET)
}

/// The ending of a file's name, which selects the format.
fn ending(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// The name of an input without folder and endings, fit to be part of a file name.
fn stem(input: &Path) -> String {
    if input == Path::new("-") {
        return "stdin".to_owned();
    }
    let mut name = &*input.file_name().unwrap_or_default().to_string_lossy();
    for ending in [".gz", ".zst", ".pcap", ".pcapng", ".cap"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    // Engines ignore files whose names begin with a dot or an underscore.
    let name: String = name.trim_start_matches(['.', '_']).chars().map(fit).take(100).collect();
    if name.is_empty() { NEUTRAL.to_owned() } else { name }
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=".contains(c);
    if path.chars().all(plain) {
        path.into_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// The beginning of file names when the input has no usable name, or must not be named.
const NEUTRAL: &str = "flows";

/// A shell pattern that matches any run.
const ANY_RUN: &str = "????????T??????Z-????????";

/// A name for a run: when it began, in readable form, and 32 random bits.
fn run(now: SystemTime) -> String {
    format!("{}-{:08x}", readable(now), rand::random::<u32>())
}

/// A time for a file's name, like 20261123T151000Z.
fn readable(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> String {
        Target::new(Path::new(path), None, None).unwrap_err().to_string()
    }

    #[test]
    fn ending_is_the_format() {
        let format = |path: &str| match Target::new(Path::new(path), None, None) {
            Ok(Target::File(file)) => Some(file.format),
            _ => None,
        };
        assert_eq!(format("a.csv"), Some(Format::Csv));
        assert_eq!(format("a.b.CSV"), Some(Format::Csv));
        assert_eq!(format("a.jsonl"), Some(Format::JsonLines));
        assert_eq!(format("a.ndjson"), Some(Format::JsonLines));
        assert_eq!(format("a.parquet").is_some(), cfg!(feature = "parquet"));
        for path in ["a", "a.json", ".csv", "a.csv.gz", "/dev/null", ""] {
            assert!(refused(path).contains(".csv, .jsonl (or .ndjson) or .parquet"), "{path}");
        }
        assert!(refused("-").contains("standard output"));
        for folder in ["/", ".", "man.parquet/", "no/such/a.csv/"] {
            assert!(refused(folder).contains("is a folder; name a file in it"), "{folder}");
        }
        assert!(refused("/no/such/folder/a.csv").contains("create it first"));
    }

    #[test]
    #[cfg(feature = "parquet")]
    fn data_set_is_no_file_of_another_format() {
        let by = Some(PartitionBy { digits: 1 });
        for path in ["x.csv", "x.JSONL", "x.ndjson"] {
            let why = Target::new(Path::new(path), by, None).unwrap_err().to_string();
            assert!(why.contains("omit --partition-by"), "{why}");
        }
        for path in ["x", "x.parquet", "x.d/"] {
            assert!(Target::new(Path::new(path), by, None).is_ok(), "{path}");
        }
    }

    #[test]
    fn files_of_a_data_set_are_named_after_their_input() {
        for (input, name) in [
            ("-", "stdin"),
            ("/tmp/eth0.pcap.gz", "eth0"),
            ("a b=c.pcapng", "a-b-c"),
            ("_x.cap", "x"),
            ("..", "flows"),
        ] {
            assert_eq!(stem(Path::new(input)), name, "{input}");
        }
        let now = SystemTime::now();
        assert_ne!(run(now), run(now));
        assert_eq!(run(now).len(), ANY_RUN.len());
        assert_eq!(quoted(Path::new("a/box=b")), "a/box=b");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
