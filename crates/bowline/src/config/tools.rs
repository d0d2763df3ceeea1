//! Which of a server's tools clients may see and call.

/// Which tools of a server are shown and may be called, by their names at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFilter {
    /// Those that are allowed; `None` for all.
    pub allow: Option<Vec<String>>,
    /// Those that are not, allowed or not.
    pub deny: Vec<String>,
}

// === impl ToolFilter ===

impl ToolFilter {
    /// Whether the tool of this name may be used.
    pub fn allows(&self, name: &str) -> bool {
        let any = |globs: &[String]| globs.iter().any(|glob| matches(glob, name));
        self.allow.as_deref().is_none_or(any) && !any(&self.deny)
    }
}

/// Whether a glob matches the whole of a text: `*` is any number of characters, `?` is one.
///
/// Only the last `*` is ever tried again, so the time is at most the product of the lengths.
fn matches(glob: &str, text: &str) -> bool {
    let (mut rest, mut left) = (glob.chars(), text.chars());
    // What comes behind the last `*`, and what it has not taken yet.
    let mut last = None;
    loop {
        let before = left.clone();
        let mut after = rest.clone();
        match (after.next(), left.next()) {
            (Some('*'), _) => {
                left = before.clone();
                last = Some((after.clone(), before));
                rest = after;
                continue;
            }
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                rest = after;
                continue;
            }
            (Some(_), None) => return false,
            _ => {}
        }
        let Some((behind, mut from)) = last.take() else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (rest, left) = (behind.clone(), from.clone());
        last = Some((behind, from));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: Option<&[&str]>, deny: &[&str]) -> ToolFilter {
        let owned = |globs: &[&str]| globs.iter().map(ToString::to_string).collect();
        ToolFilter {
            allow: allow.map(owned),
            deny: owned(deny),
        }
    }

    #[test]
    fn globs_match_whole_names() {
        for (glob, text, expected) in [
            ("search", "search", true),
            ("search", "search2", false),
            ("search", "Search", false),
            ("*", "", true),
            ("?", "", false),
            ("", "", true),
            ("", "a", false),
            ("get_*", "get_", true),
            ("get_*", "get_user", true),
            ("get_*", "forget_user", false),
            ("*_user", "get_user_user", true),
            ("*a*b", "xaybzab", true),
            ("*a*b", "xaybza", false),
            ("g?t", "gét", true),
            ("g?t", "geet", false),
            ("**", "anything", true),
            ("a*?", "a", false),
            ("a*?", "ab", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn a_glob_that_nearly_matches_takes_no_time() {
        let text = "a".repeat(100_000);
        assert!(!matches("*a*a*a*a*a*a*a*a*b", &text));
    }

    #[test]
    fn deny_wins() {
        let all = filter(None, &[]);
        assert!(all.allows("x") && all.allows(""));
        let some = filter(Some(&["get_*", "search"]), &["get_secret*"]);
        assert!(some.allows("search") && some.allows("get_user"));
        assert!(!some.allows("get_secrets") && !some.allows("delete"));
        assert!(!filter(Some(&[]), &[]).allows("x"));
        assert!(!filter(None, &["*"]).allows("x"));
    }

    /// As it is defined: slow, and surely right.
    fn defined(glob: &[char], text: &[char]) -> bool {
        match (glob, text) {
            ([], []) => true,
            (['*', glob @ ..], _) => {
                (0..=text.len()).any(|skipped| defined(glob, &text[skipped..]))
            }
            (['?', glob @ ..], [_, text @ ..]) => defined(glob, text),
            ([wanted, glob @ ..], [found, text @ ..]) => wanted == found && defined(glob, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_glob_matches_what_it_means(glob in "[ab*?]{0,7}", text in "[ab]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&glob, &text), defined(&chars(&glob), &chars(&text)));
        }
    }
}
