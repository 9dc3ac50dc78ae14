//! "Did you mean": the nearest valid word to a misspelt one.

/// The valid word most like `word`, if any is like it at all.
pub(crate) fn nearest<'a>(word: &str, valid: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distance = |candidate: &&str| strsim::damerau_levenshtein(&word, candidate);
    valid.iter().copied().min_by_key(distance).filter(|best| distance(best) <= 2)
}

/// `; did you mean 'rps'?`, or the list of what there is.
pub(crate) fn suggestion(word: &str, valid: &[&str]) -> String {
    match nearest(word, valid) {
        Some(best) => format!("; did you mean '{best}'?"),
        None => format!("; the words are '{}'", valid.join("', '")),
    }
}

/// `1 CPU`, `2 CPUs`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A whole number from `MIN` to `MAX`.
pub(crate) fn whole<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(
    text: &str,
) -> Result<T, String> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("it takes a whole number from {MIN} to {MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_find_their_word() {
        let valid = ["none", "rps", "bound"];
        assert_eq!(nearest("rsp", &valid), Some("rps"));
        assert_eq!(nearest("bnd", &valid), Some("bound"));
        assert_eq!(nearest("RPS", &valid), Some("rps"));
        assert_eq!(nearest("nope", &valid), Some("none"));
        assert_eq!(nearest("zzzzzz", &valid), None);
        assert_eq!(suggestion("qqqqqq", &valid), "; the words are 'none', 'rps', 'bound'");
    }
}
