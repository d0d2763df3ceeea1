//! What a test skips is told, and counted at the end of `scripts/test`.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Says that this is not tested here: on the output, which a passing test's is hidden of, and in the file
/// that `BOWLINE_SKIPS` names.
#[expect(clippy::print_stdout, reason = "it is told to people")]
#[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
pub fn skip(what: &str) {
    let line = format!("!! {what}");
    println!("{line}");
    let Ok(file) = std::env::var("BOWLINE_SKIPS") else {
        return;
    };
    let opened = OpenOptions::new().append(true).create(true).open(file);
    // If it cannot be written, the line above is all there is.
    drop(opened.and_then(|mut file| writeln!(file, "{line}")));
}
