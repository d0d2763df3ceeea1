//! Protocol revisions that have sessions.

use std::sync::{Arc, LazyLock};

use http::HeaderValue;

use crate::message::Message;

/// The session-based revisions that Bowline supports, oldest first.
pub const SUPPORTED: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Those of streamable HTTP. The one before them has HTTP+SSE, and no `MCP-Protocol-Version`.
pub const STREAMABLE: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

static KNOWN: LazyLock<[Agreed; SUPPORTED.len()]> =
    LazyLock::new(|| SUPPORTED.map(|known| Agreed(Arc::new(HeaderValue::from_static(known)))));

/// The revision that a client and a server agreed on. There are few values, and sessions share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed(Arc<HeaderValue>);

/// Whether clients of any session may name this revision in `MCP-Protocol-Version`.
pub fn is_supported(version: &str) -> bool {
    STREAMABLE.contains(&version)
}

/// Whether this revision allows batches. Only one does.
pub fn has_batches(version: &str) -> bool {
    version == "2025-03-26"
}

/// Whether a server of this revision expects `MCP-Protocol-Version` on every later request.
///
/// The header was introduced with 2025-06-18. Revisions are dates, so they compare as text.
pub fn wants_header(version: &str) -> bool {
    version >= "2025-06-18"
}

// === impl Agreed ===

impl Agreed {
    /// The revision of this name, even if Bowline does not know it: client and server agreed on it.
    /// `None` if it is not a valid header value.
    pub fn on(version: &str) -> Option<Self> {
        let mut known = KNOWN.iter();
        if let Some(known) = known.find(|known| known.as_str() == version) {
            return Some(known.clone());
        }
        let header = HeaderValue::from_str(version).ok()?;
        header.to_str().is_ok().then(|| Self(Arc::new(header)))
    }

    /// The revision that this `initialize` asks for, or the newest if Bowline does not know it.
    pub fn asked_by(initialize: &Message) -> Self {
        let asked = initialize.param("protocolVersion");
        let asked = asked.map(|span| initialize.text(span).trim_matches('"'));
        let [.., newest] = &*KNOWN;
        let mut known = KNOWN.iter();
        let known = known.find(|known| Some(known.as_str()) == asked);
        known.unwrap_or(newest).clone()
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Its name as a header's value.
    pub fn as_header(&self) -> &HeaderValue {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_is_not_known_is_agreed_on_all_the_same() {
        for version in ["2025-11-25", "2031-01-01"] {
            let agreed = Agreed::on(version).unwrap();
            assert_eq!(agreed.as_str(), version);
            assert_eq!(agreed.as_header(), version);
        }
    }

    #[test]
    fn what_is_asked_for_is_agreed_on_if_it_is_known() {
        let asked = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
            let message = Message::parse(text.into()).unwrap();
            Agreed::asked_by(&message).as_str().to_owned()
        };
        assert_eq!(asked(r#"{"protocolVersion":"2025-03-26"}"#), "2025-03-26");
        for odd in [
            r#"{"protocolVersion":"2031-01-01"}"#,
            r#"{"protocolVersion":7}"#,
            "{}",
        ] {
            assert_eq!(asked(odd), "2025-11-25");
        }
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_revision() {
        for version in ["2025\n11", "2025–11–25"] {
            assert_eq!(Agreed::on(version), None, "{version:?}");
        }
    }
}
