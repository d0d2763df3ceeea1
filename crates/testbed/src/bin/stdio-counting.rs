//! Runs the counting server over stdio, for chaos.

use std::path::Path;

use bowline_testbed::stdio::counted::{CLOSED, NOTES, serve};

#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn main() -> std::process::ExitCode {
    let variable = |name| std::env::var(name).ok();
    let is_closed = variable(CLOSED).is_some_and(|path| Path::new(&path).exists());
    let (Some(notes), false) = (variable(NOTES), is_closed) else {
        return std::process::ExitCode::FAILURE;
    };
    serve(std::io::stdin().lock(), std::io::stdout(), notes.into());
    std::process::ExitCode::SUCCESS
}
