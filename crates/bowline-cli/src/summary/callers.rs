//! What `bowline check` prints about callers.

use std::fmt;

use bowline::config::Config;

use super::{MASKED, key, strings, union};

/// The callers, without their keys.
pub(super) fn callers(f: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    for (name, caller) in &config.callers {
        writeln!(f, "\n[callers.{}]", key(name.as_ref()))?;
        if caller.key.is_some() {
            writeln!(f, "key = \"{MASKED}\"")?;
        }
        let hashes: Vec<_> = caller
            .certificates
            .iter()
            .map(ToString::to_string)
            .collect();
        if !hashes.is_empty() {
            writeln!(f, "certificate_sha256 = [{}]", strings(&hashes))?;
        }
        if let Some(servers) = &caller.servers {
            writeln!(f, "servers = [{}]", union::names(servers))?;
        }
    }
    if config.callers.is_empty() {
        writeln!(f, "\n# no callers: no key is required")?;
    }
    Ok(())
}
