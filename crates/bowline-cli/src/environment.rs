//! The environment, for the variables of a configuration file: read here and nowhere else.

/// What this variable holds; one that is not Unicode cannot be used, as if it were not set.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the environment"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
