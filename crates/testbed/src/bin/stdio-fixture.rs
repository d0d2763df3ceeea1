//! Runs the stdio fixture as a program of its own, for gateways that are not in a Rust test.

use bowline_testbed::stdio::{START, TALLY, serve};

#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn main() {
    let variable = |name| std::env::var(name).ok();
    serve(
        std::io::stdin().lock(),
        std::io::stdout(),
        variable(TALLY).map(Into::into),
        &variable(START).unwrap_or_default(),
    );
}
