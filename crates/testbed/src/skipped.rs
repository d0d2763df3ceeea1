//! Reports skipped tests, which `scripts/test` counts at its end.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Reports that this is not tested here: on the output, which is hidden for a passing test, and in the
/// file that `BOWLINE_SKIPS` names.
#[expect(clippy::print_stdout, reason = "it is told to people")]
#[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
pub fn skip(what: &str) {
    let line = format!("!! {what}");
    println!("{line}");
    let Ok(file) = std::env::var("BOWLINE_SKIPS") else {
        return;
    };
    let opened = OpenOptions::new().append(true).create(true).open(file);
    // If the file cannot be written, the line above is the only report.
    drop(opened.and_then(|mut file| writeln!(file, "{line}")));
}
