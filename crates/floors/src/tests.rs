//! The floors hold, and the reader sees what breaks them.

use super::*;
use crate::floors::path;
use crate::source::Source;

#[test]
fn no_module_uses_one_above_it() {
    let all = Floors::listed();
    let crates = Crates::read(&all).unwrap();
    let wrong = all.iter().map(|one| one.wrong(&crates.uses(&one.room)));
    let wrong = wrong.collect::<Vec<_>>().concat();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// HTTP ends at the fronts and at the upstreams' transports.
#[test]
fn messages_are_the_currency_between_the_floors() {
    let between = ["exchange", "registry", "session", "session_store", "leg"];
    let http = ["http", "http_body", "hyper"];
    let library = Crates::read(&[]).unwrap().library;
    let found = library.named.iter().filter(|(module, path)| {
        module.first().is_some_and(|it| between.contains(&&**it))
            && http.contains(&&*path[0])
            && library.home(module, path).is_none()
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
}

// === Planted violations ===

/// The rooms of a source with these files, and what is wrong with them under these floors.
fn wrong_in(files: &[(&str, &str)], floors: &str) -> Vec<String> {
    let mut source = Source::default();
    for (module, text) in files {
        source.add(&path(module), text).unwrap();
    }
    let all = Floors::parse(floors);
    let wrong = all
        .iter()
        .map(|one| one.wrong(&source.uses(&path(&one.room))));
    wrong.collect::<Vec<_>>().concat()
}

#[test]
fn the_rest_of_a_file_is_read_after_its_tests() {
    let low = "
        #[cfg(test)]
        mod tests;
        #[cfg(test)]
        mod more { use crate::high::Only; }
        #[cfg(test)]
        pub(crate) use crate::high::{In, Tests};
        #[cfg(test)]
        fn helper() { crate::high::help(); }
        // crate::high::in_a_comment
        const TEXT: &str = \"crate::high::in_a_string\";
    ";
    let files = |more: &str| [("high", "".to_owned()), ("low", format!("{low}{more}"))];
    let wrong = |more: &str| {
        let files = files(more);
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, &**text)).collect();
        wrong_in(&files, "high\nlow")
    };
    assert_eq!(wrong(""), [""; 0]);
    let found = ["[] low uses high: crate::high::f in low"];
    assert_eq!(wrong("fn f() { crate::high::f() }"), found);
    assert_eq!(
        wrong("#[cfg(feature = \"planted\")] use crate::high::f;"),
        found
    );
}

#[test]
fn every_way_to_name_a_sibling_counts() {
    let ways = [
        "use crate::room::high::Name;",
        "use crate::{\n    room::{self, high::{Name, Other as It}},\n    other,\n};",
        "use super::super::high::Name;",
        "use crate::room::Name;",
        "use super::super::Renamed;",
        "use super::super::super::Above;",
        "fn f() { let it = super::super::high::f(); }",
        "use super::super::high; fn f() { tokio::select! { it = high::f() => it } }",
        "#[cfg(feature = \"planted\")] use super::super::high::Name;",
        "mod inline { use super::super::super::high::Name; }",
    ];
    for way in ways {
        let files = [
            ("", "mod room; pub use room::Renamed as Above;"),
            (
                "room",
                "mod high; mod low; pub use self::high::{Name, Name as Renamed}; struct Own;",
            ),
            ("room::high", "pub struct Name; pub fn f() {}"),
            ("room::low", "mod deep; use std::high::Name as Foreign;"),
            ("room::low::deep", way),
        ];
        let wrong = wrong_in(&files, "room\n[room]\nhigh\nlow");
        assert_eq!(wrong.len(), 1, "{way}: {wrong:?}");
        assert!(wrong[0].starts_with("[room] low uses high"), "{wrong:?}");
    }
    let parents = [
        ("room", "mod high; mod low; struct Own;"),
        ("room::high", "use super::low::It;"),
        ("room::low", "use super::Own; use crate::room;"),
    ];
    assert_eq!(wrong_in(&parents, "room\n[room]\nhigh\nlow"), [""; 0]);
    assert_eq!(wrong_in(&parents, "room\n[room]\nhigh low").len(), 1);
    assert_eq!(
        wrong_in(&parents, "room\n[room]\nhigh\ngone"),
        ["[room] there is no `gone`", "[room] floors.txt lacks `low`"]
    );
}
