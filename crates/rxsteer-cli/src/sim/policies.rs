//! The list of `--compare`: policies separated by commas, although a policy itself can contain commas.
//!
//! ```text
//! list   = policy { "," policy }           at least two, each once
//! policy = as in --policy: none, rps, bound:QUEUE=CPU{,QUEUE=CPU}, sparse[:NAME=N{,NAME=N}], …
//! ```
//!
//! A part with an equals sign and no colon belongs to the policy before it, if that has a colon: it is another binding
//! or setting. No policy has that form, so any other part begins a new policy.

use rxsteer_settings::policy;
use rxsteer_user::core::Policy;

/// Policies to compare; at least two, all different. The first is the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policies(pub(crate) Vec<Policy>);

pub(crate) fn parse_policies(text: &str) -> Result<Policies, String> {
    let mut texts: Vec<String> = Vec::new();
    for part in text.split(',') {
        let is_setting = part.contains('=') && !part.contains(':');
        match texts.last_mut() {
            Some(policy) if is_setting && policy.contains(':') => {
                policy.push(',');
                policy.push_str(part);
            }
            _ => texts.push(part.to_owned()),
        }
    }
    let mut policies: Vec<Policy> = Vec::new();
    for text in texts {
        let policy = policy(text.trim())?;
        if policies.contains(&policy) {
            return Err(format!("'{policy}' is named twice; its runs would be the same"));
        }
        policies.push(policy);
    }
    if policies.len() < 2 {
        return Err(format!(
            "'{text}' is one policy, and a comparison requires two or more, e.g. rps,sparse; to run it alone: --set \
             steering.policy={text}"
        ));
    }
    Ok(Policies(policies))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let Policies(policies) = parse_policies(text).unwrap();
        policies.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bindings_belong_to_bound_and_all_else_begins_a_policy() {
        assert_eq!(read("none,rps"), ["none", "rps"]);
        assert_eq!(read("rps, sparse:loops=2 ,rfs"), ["rps", "sparse:loops=2", "rfs"]);
        assert_eq!(read("bound:0=1,1=2,rps"), ["bound:0=1,1=2", "rps"]);
        assert_eq!(
            read("sparse:after=8,loops=2,rps+balance:moves=1,buckets=256,none"),
            ["sparse:after=8,loops=2", "rps+balance:buckets=256,moves=1", "none"]
        );
        assert_eq!(read("none,bound:0=1,1=2,2=3"), ["none", "bound:0=1,1=2,2=3"]);
        assert_eq!(read("bound:0=1,bound:0=2,1=1"), ["bound:0=1", "bound:0=2,1=1"]);
        assert_eq!(read("bound:0=1,sparse:loops=2"), ["bound:0=1", "sparse:loops=2"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("rps", "requires two or more"),
            ("rps,rps", "named twice"),
            ("sparse,sparse:loops=4", "named twice"),
            ("rps,sprase", "did you mean 'sparse'"),
            ("rps,1=2", "there is no policy '1=2'"),
            ("bound:0=1,0=2,rps", "bound twice"),
            ("rps,,sparse", "there is no policy ''"),
            ("rps,sparse:loops=9", "loops must be 1 to 5"),
        ] {
            let error = parse_policies(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
