//! Pages of a joined list. A cursor says after which item of which server the next page begins, so it holds at any
//! gateway, and also if the lists have changed meanwhile. Whatever servers list, it is short, and the pages end.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// What one page has at most. Many clients never ask for a second one.
const MAX_ITEMS: usize = 1000;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How many items of one server are shown at most: twice as many as are read of its list, or as it lists.
const MAX_SHOWN: usize = 20_000;

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
    /// A hash of its key, which may be long.
    after: [u8; 16],
    /// How many items of this server were on pages so far.
    shown: usize,
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
    /// begins: better the same twice than something not at all. But a server whose list is never the same is passed in
    /// the end.
    fn start(&self, entries: &[Entry], servers: &[&str]) -> usize {
        let order = |server: &str| servers.iter().position(|known| *known == server);
        let own = order(&self.server).unwrap_or(servers.len());
        let first = |is_it: &dyn Fn(Option<usize>) -> bool| {
            let at = entries.iter().position(|entry| is_it(order(&entry.server)));
            at.unwrap_or(entries.len())
        };
        let (begin, end) = (first(&|at| at >= Some(own)), first(&|at| at > Some(own)));
        let entries = &entries[begin..end];
        if self.shown > MAX_SHOWN.max(2 * entries.len()) {
            return end;
        }
        let last = entries
            .iter()
            .position(|entry| hash(&entry.key) == self.after);
        begin + last.map_or(0, |last| last + 1)
    }
}

fn hash(key: &str) -> [u8; 16] {
    let digest = digest::digest(&digest::SHA256, key.as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest.as_ref()[..16]);
    hash
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
        let its_own = entries[start..end].iter();
        let shown = its_own.filter(|entry| entry.server == last.server).count();
        let before = after.filter(|cursor| cursor.server == last.server);
        let cursor = Cursor {
            list: list.into(),
            server: last.server.clone(),
            after: hash(&last.key),
            shown: before.map_or(shown, |before| before.shown.saturating_add(shown)),
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
    fn a_list_that_is_never_the_same_ends() {
        let servers = ["a", "b"];
        let (mut after, mut pages) = (None, 0);
        let shown = loop {
            let from = pages * 1100;
            let now = entries(&[("a", from..from + 1100), ("b", 0..1)]);
            let (shown, next) = page("tools", &now, &servers, after.as_ref());
            pages += 1;
            assert!(pages < 30, "page after page of the first server");
            match next {
                Some(next) => after = Cursor::parse(&next, "tools"),
                None => break shown.iter().any(|entry| &*entry.server == "b"),
            }
        };
        assert!(shown, "the second server is on a page");
    }

    #[test]
    fn a_cursor_is_short() {
        let long = Entry {
            server: "a".into(),
            key: "x".repeat(1_000_000).into(),
            is_bare: false,
            raw: " ".repeat(MAX_BYTES),
        };
        let mut entries = entries(&[("a", 0..1)]);
        entries.insert(0, long);
        entries[1].raw = "{}".to_owned();
        let (shown, next) = page("tools", &entries, &["a"], None);
        let next = next.unwrap();
        assert!(shown.len() == 1 && next.len() < 256, "{next}");
        let cursor = Cursor::parse(&next, "tools").unwrap();
        let (rest, _) = page("tools", &entries, &["a"], Some(&cursor));
        assert_eq!(rest, &entries[1..]);
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
