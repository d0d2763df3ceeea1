//! The floors of the library: no module uses one that is above it, and none is left out of `floors.txt`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which floor each module is on; the lowest is 0.
fn floors() -> BTreeMap<String, usize> {
    let text = include_str!("../floors.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<_> = lines.collect();
    let numbered = lines.iter().rev().enumerate();
    numbered
        .flat_map(|(floor, line)| {
            line.split_whitespace()
                .map(move |name| (name.to_owned(), floor))
        })
        .collect()
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The modules that a line names: what follows each `crate::`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").map(|(at, prefix)| {
        let rest = &line[at + prefix.len()..];
        let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// The top module of a file, unless it holds tests, which may use anything.
fn module(source: &Path, root: &Path) -> Option<String> {
    let path = source.strip_prefix(root).unwrap();
    let is_test = path
        .iter()
        .any(|part| part == "tests" || part == "tests.rs");
    let top = path.iter().next().unwrap().to_str().unwrap();
    let top = top.strip_suffix(".rs").unwrap_or(top);
    (!is_test && top != "lib").then(|| top.to_owned())
}

#[test]
fn no_module_uses_one_above_it() {
    let floors = floors();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upward = Vec::new();
    for source in sources(&root) {
        let Some(module) = module(&source, &root) else {
            continue;
        };
        let own = floors.get(&module);
        let own = *own.unwrap_or_else(|| panic!("floors.txt does not know `{module}`"));
        let text = fs::read_to_string(&source).unwrap();
        for (number, line) in text.lines().enumerate() {
            // What follows is for tests, which may use anything.
            if line == "#[cfg(test)]" {
                break;
            }
            if line.trim_start().starts_with("//") {
                continue;
            }
            let above = named(line).filter(|name| {
                let floor = floors.get(*name);
                *name != module && floor.is_some_and(|floor| *floor >= own)
            });
            for name in above {
                let place = source.strip_prefix(&root).unwrap().display();
                upward.push(format!("{place}:{}: {module} uses {name}", number + 1));
            }
        }
    }
    assert!(upward.is_empty(), "\n{}", upward.join("\n"));
}

/// HTTP ends at the fronts and at the upstreams' transports.
#[test]
fn messages_are_the_currency_between_the_floors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for source in sources(&root) {
        let Some(module) = module(&source, &root) else {
            continue;
        };
        let floors = ["exchange", "registry", "session", "session_store", "leg"];
        if !floors.contains(&module.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&source).unwrap();
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
        for (number, line) in lines.enumerate() {
            if line.contains("http::") || line.contains("http_body::") || line.contains("hyper::") {
                let place = source.strip_prefix(&root).unwrap().display();
                found.push(format!("{place}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
