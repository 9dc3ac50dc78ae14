//! `cargo xtask words`: finds words that must not be used again. `scripts/words.txt` lists them with their
//! replacements.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{Outcome, shell};

/// The file with the words.
const LIST: &str = "scripts/words.txt";

/// Files that may contain such words: the list, this check, the history, licences, and lock files.
const LEFT_OUT: [&str; 7] = [
    LIST,
    "xtask/src/words.rs",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "Cargo.lock",
    "fuzz/Cargo.lock",
];

/// Looks for replaced words in code, comments and documents.
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask words\n\nThe words: scripts/words.txt")]
pub(crate) struct Options {}

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// Each phrase is one or several words in lower case.
    phrases: Vec<Vec<String>>,
    better: String,
    /// Where the word is allowed: a file, or a folder.
    exceptions: Vec<String>,
}

impl Rule {
    fn applies_to(&self, path: &str) -> bool {
        let is_in = |exception: &String| {
            path == exception || exception.ends_with('/') && path.starts_with(exception.as_str())
        };
        !self.exceptions.iter().any(is_in)
    }
}

pub(crate) fn run(_options: &Options) -> Result<Outcome> {
    let list = shell::root().join(LIST);
    let rules = rules(&fs::read_to_string(&list).with_context(|| format!("cannot read {LIST}"))?)?;
    let listing = shell::command("git").args(["ls-files", "-z"]).output();
    let listing = listing.context("cannot run git")?;
    ensure!(listing.status.success(), "git ls-files failed; run this in a checkout");
    let mut count = 0;
    for path in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
        let file = shell::root().join(path);
        // The target of a link is listed with its own path.
        if LEFT_OUT.contains(&path) || file.is_symlink() {
            continue;
        }
        // A capture is not text, and a file that was just deleted does not exist.
        let Ok(text) = fs::read_to_string(file) else { continue };
        for (line, found, rule) in findings(path, &text, &rules) {
            println!("{path}:{line}: '{found}' was replaced by: {}", rule.better);
            count += 1;
        }
    }
    Ok(if count == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// Reads the list.
fn rules(text: &str) -> Result<Vec<Rule>> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| (number, line.trim()));
    let written = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    written
        .map(|(number, line)| {
            let (rule, exceptions) = line.split_once('|').unwrap_or((line, ""));
            let (words, better) = rule.split_once(':').with_context(|| {
                format!("{LIST}:{number}: there is no colon before the better word")
            })?;
            let list = |text: &str| text.split(',').map(|word| word.trim().to_owned()).collect();
            let words: Vec<String> = list(words);
            let exceptions: Vec<String> = list(exceptions);
            Ok(Rule {
                phrases: words
                    .iter()
                    .map(|words| parts(words).map(|part| part.1).collect())
                    .collect(),
                better: better.trim().to_owned(),
                exceptions: exceptions.into_iter().filter(|path| !path.is_empty()).collect(),
            })
        })
        .collect()
}

/// The words of a text in lower case, with their line numbers: `wish_mask` and `WishMask` are two words each.
fn parts(text: &str) -> impl Iterator<Item = (usize, String)> {
    (1..).zip(text.lines()).flat_map(|(line, text)| {
        let mut words: Vec<(usize, String)> = Vec::new();
        let mut before = ' ';
        for letter in text.chars() {
            if letter.is_alphabetic() {
                let continues =
                    before.is_alphabetic() && !(before.is_lowercase() && letter.is_uppercase());
                match words.last_mut().filter(|_| continues) {
                    Some((_, word)) => word.extend(letter.to_lowercase()),
                    None => words.push((line, letter.to_lowercase().collect())),
                }
            }
            before = letter;
        }
        words
    })
}

/// Each use of a listed word in a file: its line, the words, and the rule.
fn findings<'rules>(
    path: &str,
    text: &str,
    rules: &'rules [Rule],
) -> Vec<(usize, String, &'rules Rule)> {
    let words: Vec<(usize, String)> = parts(text).collect();
    let mut found = Vec::new();
    for rule in rules.iter().filter(|rule| rule.applies_to(path)) {
        for phrase in &rule.phrases {
            let uses = words
                .windows(phrase.len())
                .filter(|words| words.iter().zip(phrase).all(|((_, word), part)| word == part));
            found.extend(uses.map(|words| (words[0].0, phrase.join(" "), rule)));
        }
    }
    found.sort_by_key(|(line, ..)| *line);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "# Comment\n\nwish, wishes: desired CPU\nstraight on: pass\nlane: backlog | simd/, one.rs\n";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let rules = rules(LISTED).unwrap();
        findings(path, text, &rules).into_iter().map(|(line, ..)| line).collect()
    }

    #[test]
    fn words_are_found_in_sentences_and_names() {
        assert_eq!(
            lines("a.rs", "Wishes come\nfirst\nlet wish_mask = 1;\nstruct OneWish;\n"),
            [1, 3, 4]
        );
        assert_eq!(lines("a.rs", "WISH_MASK has_wishes"), [1, 1]);
        assert_eq!(lines("a.rs", "wishbone unwished swish\n"), [0; 0], "parts of other words");
    }

    #[test]
    fn words_in_a_row_are_found_across_lines() {
        assert_eq!(lines("a.md", "It goes straight on.\nstraight\non; a straight line\n"), [1, 2]);
    }

    #[test]
    fn words_are_right_in_excepted_paths() {
        assert_eq!(lines("simd/mod.rs", "a lane"), [0; 0]);
        assert_eq!(lines("one.rs", "a lane"), [0; 0]);
        assert_eq!(lines("two.rs", "a lane"), [1]);
    }

    #[test]
    fn list_in_the_repository_can_be_read() {
        let list = fs::read_to_string(shell::root().join(LIST)).unwrap();
        let rules = rules(&list).unwrap();
        assert!(rules.len() > 10 && rules.iter().all(|rule| !rule.better.is_empty()), "{rules:?}");
        assert!(super::rules("a word without a better one").is_err());
    }
}
