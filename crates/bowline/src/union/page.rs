//! Pages of a joined list. A cursor says after which item of which server the next page begins, so it holds at any
//! gateway, and also if the lists have changed meanwhile.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// What one page has at most. Many clients never ask for a second one.
const MAX_ITEMS: usize = 1000;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// An item of a joined list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) server: Box<str>,
    /// Its own name, URI or URI template at its server.
    pub(super) key: Box<str>,
    /// Whether the client sees it under that name, although it is a tool or prompt.
    pub(super) is_bare: bool,
    /// Its definition for the client.
    pub(super) raw: String,
}

/// The last item of a page.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// The list that it is of.
    list: Box<str>,
    server: Box<str>,
    key: Box<str>,
}

// === impl Cursor ===

impl Cursor {
    /// Reads a cursor of this list.
    pub(super) fn parse(text: &str, list: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let cursor: Self = serde_json::from_slice(&bytes).ok()?;
        (*cursor.list == *list).then_some(cursor)
    }

    fn to_text(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    /// Where the next page begins. `servers` are all servers, in order. If the item is gone, that is where its server
    /// begins: better the same twice than something not at all.
    fn start(&self, entries: &[Entry], servers: &[&str]) -> usize {
        let is_last = |entry: &Entry| entry.server == self.server && entry.key == self.key;
        if let Some(at) = entries.iter().position(is_last) {
            return at + 1;
        }
        let order = |server: &str| servers.iter().position(|known| *known == server);
        let own = order(&self.server).unwrap_or(servers.len());
        let first = entries
            .iter()
            .position(|entry| order(&entry.server) >= Some(own));
        first.unwrap_or(entries.len())
    }
}

/// One page, and the cursor of the next if there is one.
pub(super) fn page<'a>(
    list: &str,
    entries: &'a [Entry],
    servers: &[&str],
    after: Option<&Cursor>,
) -> (&'a [Entry], Option<String>) {
    let start = after.map_or(0, |cursor| cursor.start(entries, servers));
    let (mut end, mut bytes) = (start, 0);
    while let Some(entry) = entries.get(end) {
        bytes += entry.raw.len();
        if end > start && (end - start >= MAX_ITEMS || bytes > MAX_BYTES) {
            break;
        }
        end += 1;
    }
    let next = (end < entries.len()).then(|| {
        let last = &entries[end - 1];
        let cursor = Cursor {
            list: list.into(),
            server: last.server.clone(),
            key: last.key.clone(),
        };
        cursor.to_text()
    });
    (&entries[start..end], next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(lists: &[(&str, std::ops::Range<usize>)]) -> Vec<Entry> {
        let entries = lists.iter().flat_map(|(server, items)| {
            items.clone().map(|item| Entry {
                server: (*server).into(),
                key: item.to_string().into(),
                is_bare: false,
                raw: String::new(),
            })
        });
        entries.collect()
    }

    /// All pages, as the client sees them.
    fn pages(entries: &[Entry], servers: &[&str]) -> Vec<usize> {
        let (mut sizes, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = page("tools", entries, servers, after.as_ref());
            sizes.push(page.len());
            match next {
                Some(next) => after = Some(Cursor::parse(&next, "tools").unwrap()),
                None => return sizes,
            }
        }
    }

    #[test]
    fn every_item_is_on_one_page() {
        let servers = ["a", "b"];
        assert_eq!(pages(&entries(&[]), &servers), [0]);
        assert_eq!(pages(&entries(&[("a", 0..1000)]), &servers), [1000]);
        let many = entries(&[("a", 0..1500), ("b", 0..700)]);
        assert_eq!(pages(&many, &servers), [1000, 1000, 200]);
    }

    #[test]
    fn a_large_item_is_a_page_of_its_own() {
        let mut large = entries(&[("a", 0..3)]);
        large[1].raw = " ".repeat(MAX_BYTES + 1);
        assert_eq!(pages(&large, &["a"]), [1, 1, 1]);
    }

    #[test]
    fn a_cursor_holds_when_lists_change() {
        let servers = ["a", "b", "c"];
        let before = entries(&[("a", 0..10), ("b", 0..1500)]);
        let (_, next) = page("tools", &before, &servers, None);
        let cursor = Cursor::parse(&next.unwrap(), "tools").unwrap();
        // `b` 989 was the last one.
        let grown = entries(&[("a", 0..400), ("b", 0..1500), ("c", 0..5)]);
        let (rest, _) = page("tools", &grown, &servers, Some(&cursor));
        assert_eq!((&*rest[0].key, rest.len()), ("990", 515));
        let without_it = entries(&[("a", 0..10), ("b", 0..980), ("c", 0..5)]);
        let (rest, _) = page("tools", &without_it, &servers, Some(&cursor));
        // Some of `b` come twice, and nothing is left out.
        assert_eq!((&*rest[0].server, rest.len()), ("b", 985));
        let without_server = entries(&[("a", 0..10), ("c", 0..5)]);
        let (rest, _) = page("tools", &without_server, &servers, Some(&cursor));
        assert_eq!((&*rest[0].server, rest.len()), ("c", 5));
    }

    #[test]
    fn what_is_no_cursor_is_none() {
        let many = entries(&[("a", 0..1500)]);
        let (_, next) = page("tools", &many, &["a"], None);
        assert!(Cursor::parse(&next.unwrap(), "prompts").is_none());
        for text in ["", "a", "e30", "äö", "bnVsbA"] {
            assert!(Cursor::parse(text, "tools").is_none(), "{text}");
        }
    }
}
