//! `docs/reference.md` says what the code says. Its generated parts stand between
//! `<!-- generated: NAME -->` and `<!-- end -->`; the rest is written by hand and is left as it is.
//!
//! `UPDATE_DOCS=1 cargo test -p bowline-cli --test reference` writes the page.
//!
//! And what any page names is there: files, links, functions.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what helpers meet fails the test"
)]

#[path = "reference/command_line.rs"]
mod command_line;
#[path = "reference/keys.rs"]
mod keys;
#[path = "reference/library.rs"]
mod library;
#[path = "reference/names.rs"]
mod names;
#[path = "reference/page.rs"]
mod page;

use std::path::Path;

use self::page::{Page, row};

/// The generated parts, in any order. Another one is a line here and a pair of marks on the page.
fn parts() -> Vec<(&'static str, String)> {
    vec![
        ("config keys", keys::tables()),
        ("command line", command_line::tables()),
        ("refusal reasons", library::refusals()),
        ("metrics", library::metrics()),
    ]
}

#[test]
fn the_reference_says_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let page = Page::filled(&written, parts());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let stale = written
        .lines()
        .zip(page.lines())
        .find(|(old, new)| old != new);
    assert!(
        written == page,
        "docs/reference.md is stale: UPDATE_DOCS=1 cargo test -p bowline-cli --test reference writes it. \
         The first difference (written, generated): {stale:#?}"
    );
}

#[test]
fn a_part_is_replaced_and_the_rest_stays() {
    let parts = || vec![("a", "new\n".to_owned())];
    let page = "before\n<!-- generated: a -->\nold\n<!-- end -->\nafter\n";
    let filled = Page::filled(page, parts());
    assert_eq!(
        filled,
        "before\n<!-- generated: a -->\nnew\n<!-- end -->\nafter\n"
    );
    assert_eq!(Page::filled(&filled, parts()), filled);
}

#[test]
fn what_would_end_a_cell_is_escaped() {
    assert_eq!(row(["a|b", "c\nd"]), "| a\\|b | c d |\n");
}

#[test]
fn the_files_that_the_documentation_names_are_there() {
    let mut missing = Vec::new();
    for (page, text) in names::pages() {
        let gone = names::files(&text);
        let gone = gone.into_iter().filter(|name| names::find(name).is_none());
        missing.extend(gone.map(|name| format!("{page}: {name}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_links_of_the_documentation_lead_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in names::pages() {
        for (file, heading) in names::links(&text) {
            let folder = names::root().join(&page).parent().unwrap().to_owned();
            let path = match file {
                "" => names::root().join(&page),
                file => folder.join(file),
            };
            let is_there = match heading {
                None => path.exists(),
                Some(heading) => std::fs::read_to_string(&path)
                    .is_ok_and(|target| names::has_heading(&target, heading)),
            };
            if !is_there {
                broken.push(format!("{page}: {file}#{}", heading.unwrap_or_default()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn what_decides_is_where_the_architecture_says() {
    let architecture = std::fs::read_to_string(names::root().join("docs/architecture.md")).unwrap();
    let decisions = names::decisions(&architecture);
    assert!(decisions.len() >= 20, "{decisions:#?}");
    let mut missing = Vec::new();
    for (question, files, functions) in decisions {
        let sources = files.iter().filter_map(|file| names::find(file));
        let sources: String = sources
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        for function in functions {
            let name = function.rsplit("::").next().unwrap();
            if !sources.contains(&format!("fn {name}("))
                && !sources.contains(&format!("fn {name}<"))
            {
                missing.push(format!("{question} {function}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
