//! What the documentation names is there: files, links, and the functions of "Where is X decided?".

use std::fs;
use std::path::{Path, PathBuf};

/// Where the paths of the documentation may begin, from the root of the repository.
const STARTS: [&str; 4] = ["", "crates", "crates/bowline", "crates/bowline/src"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page, with its path from the root.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "docs/guides"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    let read = |page: String| {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        (page, text)
    };
    pages.into_iter().map(read).collect()
}

/// The Rust files that a text names between backticks, with a folder: `leg/marks.rs`.
pub(crate) fn files(text: &str) -> Vec<&str> {
    let is_path = |name: &&str| name.ends_with(".rs") && name.contains('/');
    let is_one = |name: &&str| !name.contains([' ', '\n', '*', '…']);
    let names = text.lines().flat_map(quoted);
    names.filter(is_path).filter(is_one).collect()
}

/// Where a file is that the documentation names. The first folder may be a crate: `wire/message.rs`.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let within = STARTS.map(|start| root().join(start).join(name));
    let crates = root().join("crates");
    let in_crate = name.split_once('/');
    let in_crate = in_crate.map(|(name, file)| crates.join(name).join("src").join(file));
    let mut candidates = within.into_iter().chain(in_crate);
    candidates.find(|path| path.is_file())
}

/// The targets of a page's links within the repository: the file, and the heading if there is one.
pub(crate) fn links(text: &str) -> Vec<(&str, Option<&str>)> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0));
    let targets = targets.filter(|target| !target.contains("://"));
    let parts = |target| match str::split_once(target, '#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (target, None),
    };
    targets.map(parts).collect()
}

/// Whether a page has a heading with this anchor.
pub(crate) fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.into_iter().any(|line| {
        let kept = |it: &char| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_');
        let name = line.trim_start_matches('#').trim().to_lowercase();
        let name: String = name.chars().filter(kept).collect();
        name.replace(' ', "-") == anchor
    })
}

/// The rows of "Where is X decided?": the question, its files and its functions.
pub(crate) fn decisions(architecture: &str) -> Vec<(&str, Vec<&str>, Vec<&str>)> {
    let (_, section) = architecture.split_once("## Where is X decided?").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.contains(".rs` |"));
    let row = |line| {
        let cells: Vec<&str> = str::split(line, '|').map(str::trim).collect();
        (cells[1], quoted(cells[2]), quoted(cells[3]))
    };
    rows.map(row).collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}
