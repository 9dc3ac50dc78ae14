//! Small files of sysfs and procfs. A file that cannot be read gives an unknown value.

use std::fs;
use std::path::Path;

/// The file's text without surrounding white space.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The number in the file.
pub(crate) fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The names in a folder, in ascending order.
pub(crate) fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The text after `name:` or `name=` in a file of such lines.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix([':', '=']).map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_by_its_whole_name() {
        let text = "CONFIG_HZ_250=y\nCONFIG_HZ=250\nThreads:\t3\n";
        assert_eq!(field(text, "CONFIG_HZ"), Some("250"));
        assert_eq!(field(text, "Threads"), Some("3"));
        assert_eq!(field(text, "Cap"), None);
    }

    #[test]
    fn missing_file_is_not_known() {
        assert_eq!(text("/nowhere/at/all"), None);
        assert_eq!(number::<u32>("/nowhere/at/all"), None);
    }
}
