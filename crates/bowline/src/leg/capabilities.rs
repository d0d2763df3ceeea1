//! The capabilities that a client relies on, and those that its server turned out not to have.

use serde::{Deserialize, Serialize};

/// The capabilities of a server that a client relies on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capabilities(u16);

/// Lists that a client was promised on a guess and that its server does not have; one bit for each
/// of [`LISTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingLists(u8);

/// Lists that can send `list_changed`, with the bit for each.
pub(crate) const LISTS: [(&str, u8); 3] = [("tools", 1), ("prompts", 2), ("resources", 4)];

// === impl Capabilities ===

impl Capabilities {
    const GUESSED: u16 = 1 << 15;
    /// The position of the bit that says that the first of [`LISTS`] exists.
    const FIRST_LIST: u16 = LISTS.len() as u16;
    const LOGGING: u16 = 2 * Self::FIRST_LIST + 1;

    /// Reads the capabilities in the result of `initialize`.
    pub(crate) fn of(capabilities: &str) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct List {
            list_changed: bool,
            subscribe: bool,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Capabilities {
            tools: Option<List>,
            prompts: Option<List>,
            resources: Option<List>,
            logging: Option<serde::de::IgnoredAny>,
            completions: Option<serde::de::IgnoredAny>,
            tasks: Option<serde::de::IgnoredAny>,
        }
        let capabilities: Capabilities = serde_json::from_str(capabilities).unwrap_or_default();
        let changes = |list: &Option<List>| list.as_ref().is_some_and(|list| list.list_changed);
        let bits = [
            changes(&capabilities.tools),
            changes(&capabilities.prompts),
            changes(&capabilities.resources),
            capabilities.tools.is_some(),
            capabilities.prompts.is_some(),
            capabilities.resources.is_some(),
            capabilities
                .resources
                .as_ref()
                .is_some_and(|list| list.subscribe),
            capabilities.logging.is_some(),
            capabilities.completions.is_some(),
            capabilities.tasks.is_some(),
        ];
        let bits = bits.into_iter().enumerate();
        Self(bits.fold(0, |sum, (place, bit)| sum | (u16::from(bit) << place)))
    }

    /// The same for capabilities that a client was shown before the server could be asked.
    pub(crate) fn guessed(capabilities: &str) -> Self {
        Self(Self::of(capabilities).0 | Self::GUESSED)
    }

    /// Whether it has every capability that the client was shown. A guess is no promise of the
    /// server's, so it is always covered.
    pub(crate) fn covers(self, shown: Self) -> bool {
        shown.0 & Self::GUESSED != 0 || self.0 & shown.0 == shown.0
    }

    /// Lists that were shown on a guess and are not in `real`.
    pub(crate) fn missing_in(self, real: Self) -> MissingLists {
        let is_guess = self.0 & Self::GUESSED != 0;
        let missing = (self.0 & !real.0) >> Self::FIRST_LIST & 0b111;
        MissingLists(if is_guess { missing as u8 } else { 0 })
    }

    /// Whether the server may have this one of [`LISTS`]: it says so, or it could not be asked yet.
    pub(crate) fn may_have(self, list: &str) -> bool {
        let place = LISTS.iter().position(|(name, _)| *name == list);
        place.is_none_or(|place| self.has(Self::FIRST_LIST + place as u16))
    }

    /// Whether the server may take a log level.
    pub(crate) fn may_log(self) -> bool {
        self.has(Self::LOGGING)
    }

    fn has(self, place: u16) -> bool {
        self.0 & (Self::GUESSED | 1 << place) != 0
    }

    /// The lists that can send `list_changed`.
    pub(crate) fn changing(self) -> u8 {
        (self.0 & 0b111) as u8
    }
}

// === impl MissingLists ===

impl MissingLists {
    pub(crate) fn is_nothing(&self) -> bool {
        self.0 == 0
    }

    /// The result for a client that requests a list that the server does not have.
    pub(crate) fn empty_list(self, method: Option<&str>) -> Option<&'static str> {
        let (list, result) = match method? {
            "tools/list" => ("tools", r#"{"tools":[]}"#),
            "prompts/list" => ("prompts", r#"{"prompts":[]}"#),
            "resources/list" => ("resources", r#"{"resources":[]}"#),
            "resources/templates/list" => ("resources", r#"{"resourceTemplates":[]}"#),
            _ => return None,
        };
        let is_missing = LISTS
            .iter()
            .any(|(name, bit)| *name == list && self.0 & bit != 0);
        is_missing.then_some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_was_shown_does_not_cover() {
        let shown =
            Capabilities::of(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
        assert!(shown.covers(shown));
        assert!(
            Capabilities::of(
                r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}"#
            )
            .covers(shown)
        );
        for less in [
            "{}",
            r#"{"tools":{},"resources":{"subscribe":true}}"#,
            r#"{"tools":{"listChanged":true},"resources":{}}"#,
        ] {
            assert!(!Capabilities::of(less).covers(shown), "{less}");
        }
    }

    #[test]
    fn a_guess_binds_nobody() {
        let shown = Capabilities::guessed(r#"{"tools":{"listChanged":true},"prompts":{}}"#);
        assert!(Capabilities::of("{}").covers(shown));
        assert_eq!(shown.changing(), 1);
    }

    #[test]
    fn lists_that_were_guessed_are_empty_where_the_server_has_none() {
        let shown = Capabilities::guessed(r#"{"tools":{},"prompts":{},"resources":{}}"#);
        let missing_lists = shown.missing_in(Capabilities::of(r#"{"tools":{},"logging":{}}"#));
        assert_eq!(missing_lists.empty_list(Some("tools/list")), None);
        assert_eq!(
            missing_lists.empty_list(Some("prompts/list")),
            Some(r#"{"prompts":[]}"#)
        );
        assert!(
            missing_lists
                .empty_list(Some("resources/templates/list"))
                .is_some()
        );
        assert_eq!(missing_lists.empty_list(Some("prompts/get")), None);
        let asked = Capabilities::of(r#"{"tools":{},"prompts":{}}"#);
        assert!(asked.missing_in(Capabilities::of("{}")).is_nothing());
    }
}
