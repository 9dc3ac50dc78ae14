//! "Did you mean": the valid word nearest to a misspelt one.

/// The valid word most similar to `word`, or `None` if no word is similar: two letters may differ, or a third of
/// them.
#[must_use]
pub fn nearest<'a>(word: &str, valid: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace('_', "-");
    let word = plain(word);
    let most = (word.chars().count() / 3).max(2);
    let distance = |candidate: &&str| strsim::damerau_levenshtein(&word, &plain(candidate));
    valid.iter().copied().min_by_key(distance).filter(|best| distance(best) <= most)
}

/// `; did you mean 'rps'?`, or the list of valid words.
#[must_use]
pub fn suggestion(word: &str, valid: &[&str]) -> String {
    match nearest(word, valid) {
        Some(best) => format!("; did you mean '{best}'?"),
        None => format!("; choose one of '{}'", valid.join("', '")),
    }
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
        assert_eq!(suggestion("qqqqqq", &valid), "; choose one of 'none', 'rps', 'bound'");
        assert_eq!(nearest("sock_flw_enties", &["sock-flow-entries"]), Some("sock-flow-entries"));
        assert_eq!(nearest("rfs-cpu", &["rfs_cpus"]), Some("rfs_cpus"));
    }
}
