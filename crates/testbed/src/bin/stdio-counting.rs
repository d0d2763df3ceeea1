//! Runs the counting server over stdio, for chaos.

use std::path::PathBuf;

use bowline_testbed::stdio::counted::{CLOSED, LOGS, Manner, NOTES, YOUNG, serve};

#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn main() -> std::process::ExitCode {
    let variable = |name| std::env::var(name).ok();
    let closed = variable(CLOSED).map(PathBuf::from);
    let says = closed.as_ref().map(std::fs::read_to_string);
    let is_closed = says.is_some_and(|says| says.is_ok_and(|says| says != YOUNG));
    let (Some(notes), false) = (variable(NOTES), is_closed) else {
        return std::process::ExitCode::FAILURE;
    };
    let manner = Manner {
        notes: notes.into(),
        closed,
        logs: variable(LOGS).is_some(),
    };
    serve(std::io::stdin().lock(), std::io::stdout(), manner);
    std::process::ExitCode::SUCCESS
}
