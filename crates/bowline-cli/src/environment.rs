//! The environment, for the variables of a configuration file: read here and nowhere else.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What this variable holds; one that is not Unicode cannot be used, as if it were not set.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the environment"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// All variables that are Unicode.
pub(crate) fn all() -> BTreeMap<String, String> {
    let variables = std::env::vars_os();
    let unicode = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    unicode.collect()
}

/// A directory of the person's: the one that this variable names, or this one in the home directory. As in the
/// XDG Base Directory Specification, paths that are not absolute count for nothing.
pub(crate) fn directory(variable_name: &str, in_home: &str) -> Option<PathBuf> {
    let path = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    path(variable_name).or_else(|| Some(path("HOME")?.join(in_home)))
}
