//! The supervisor alone, for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    match bowline_children::supervise() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
