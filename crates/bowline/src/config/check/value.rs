//! Single values: addresses, counts, durations.

use std::time::Duration;

use toml::Spanned;

use crate::config::report::Findings;
use crate::config::{ListenAddress, ListenProblem};

/// The longest duration, one year: longer ones are slips, and a deadline in the far future can
/// overflow the clock.
const LONGEST: Duration = Duration::from_secs(31_557_600);

/// An address to listen on.
pub(super) fn address(
    key: &str,
    help: &str,
    written: &Spanned<String>,
    findings: &mut Findings,
) -> Option<ListenAddress> {
    let complain = |problem: ListenProblem| {
        let message = format!("`{key}` is {}", problem.what());
        findings.add(written.span(), message, help);
    };
    written.get_ref().parse().map_err(complain).ok()
}

/// A number that is large enough.
pub(super) fn count(
    key: &str,
    least: u32,
    written: Option<&Spanned<i128>>,
    default: usize,
    findings: &mut Findings,
) -> usize {
    let Some(written) = written else {
        return default;
    };
    let message = if *written.get_ref() < i128::from(least) {
        format!("`{key}` must be at least {least}")
    } else {
        match usize::try_from(*written.get_ref()) {
            Ok(count) => return count,
            Err(_) => format!("`{key}` is too large: it must fit in {} bits", usize::BITS),
        }
    };
    let help = format!("leave it out for the default, {default}");
    findings.add(written.span(), message, help);
    default
}

/// A duration, or its default.
pub(super) fn duration(
    key: &str,
    written: Option<&Spanned<String>>,
    default: Duration,
    findings: &mut Findings,
) -> Duration {
    optional_duration(key, written, findings).unwrap_or(default)
}

/// A duration; `None` when there is none, or none that can be used.
pub(super) fn optional_duration(
    key: &str,
    written: Option<&Spanned<String>>,
    findings: &mut Findings,
) -> Option<Duration> {
    let written = written?;
    let message = match humantime::parse_duration(written.get_ref()) {
        Err(_) => format!("`{key}` is not a duration"),
        Ok(Duration::ZERO) => format!("`{key}` must be more than zero"),
        Ok(duration) if duration > LONGEST => format!("`{key}` is longer than a year"),
        Ok(duration) => return Some(duration),
    };
    let help = "write a number and a unit, such as `500ms`, `10s`, `30m` or `2h`";
    findings.add(written.span(), message, help);
    None
}
