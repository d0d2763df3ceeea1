//! The inputs in the corpus as an ordinary test: what was found once stays found.

use std::fs;
use std::path::Path;

/// Runs a check over every input of a target's corpus. Its panic names the assertion; the last
/// line before it names the input.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut inputs: Vec<_> = fs::read_dir(corpus.join(target))
        .and_then(Iterator::collect)
        .expect("the corpus can be listed");
    inputs.sort_by_key(fs::DirEntry::path);
    assert!(!inputs.is_empty(), "the corpus of {target} is empty");
    for input in inputs {
        println!("{}", input.path().display());
        check(&fs::read(input.path()).expect("an input can be read"));
    }
}
