//! File descriptors: every connection is one, and there are only so many.
//!
//! The limit is the process's, so what is known of it is, too. The last descriptors are a reserve
//! ([`bowline_system::descriptors`]).

use bowline_system::descriptors::reserve_from;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// How many refused connections are open at once.
pub(crate) const REFUSED_AT_ONCE: usize = 64;

/// What the process has open anyway: listeners, the store, logs, the runtime; and refused connections.
const OWN: usize = 32 + REFUSED_AT_ONCE;

/// The pipes of a child process: its stdin, stdout and stderr.
const PIPES: usize = 3;

/// The reserve, where there are enough descriptors for one of this size.
const RESERVE: usize = 64;

/// Raises the limit as far as the system allows. How many there are then; `None` for no limit.
pub(crate) fn raise() -> Option<usize> {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    if before.current != before.maximum {
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => tracing::info!(
                from = shown(before.current),
                to = shown(raised.current),
                "raised the limit of open files"
            ),
            Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
        }
    }
    let now = getrlimit(Resource::Nofile).current;
    now.map(|now| usize::try_from(now).unwrap_or(usize::MAX))
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// Makes the limits such that the descriptors are enough: one for a client's connection, one for a
/// request to a server, and the pipes of children if any server `has_children`. Warns if they were not.
pub(crate) fn fit(limits: &mut Limits, available: Option<usize>, has_children: bool) {
    let Some(available) = available else {
        return;
    };
    let reserve = RESERVE.min(available / 8);
    reserve_from(available - reserve);
    let fitted = fitted(limits, available - reserve, has_children);
    let counts = |limits: &Limits| (limits.streams, limits.connections, limits.children);
    if counts(limits) == counts(&fitted) {
        return;
    }
    tracing::warn!(
        open_files = available,
        streams = fitted.streams,
        connections = fitted.connections,
        children = fitted.children,
        "the limit of open files is too low for [limits] streams = {}, connections = {} and children = {}, so \
         these are lower: raise it to {} (`ulimit -n`, LimitNOFILE=), or lower them",
        limits.streams,
        limits.connections,
        limits.children,
        wanted(limits, has_children).saturating_add(OWN + RESERVE),
    );
    *limits = fitted;
}

/// How many descriptors the limits allow to be used at once.
fn wanted(limits: &Limits, has_children: bool) -> usize {
    let sockets = limits.streams.saturating_add(limits.connections);
    sockets.saturating_add(pipes(limits, has_children))
}

fn pipes(limits: &Limits, has_children: bool) -> usize {
    match has_children {
        true => limits.children.saturating_mul(PIPES),
        false => 0,
    }
}

fn fitted(limits: &Limits, available: usize, has_children: bool) -> Limits {
    let usable = available.saturating_sub(OWN).max(2);
    let mut fitted = limits.clone();
    if wanted(limits, has_children) > usable {
        if has_children {
            // A session of such a server needs a process and, from time to time, a stream and a connection.
            fitted.children = limits.children.min((usable / 2 / PIPES).max(1));
        }
        let usable = usable.saturating_sub(pipes(&fitted, has_children)).max(2);
        fitted.streams = limits.streams.min(usable / 2);
        fitted.connections = limits.connections.min(usable - fitted.streams);
    }
    if fitted.connections < limits.connections {
        // One address without a key must not be able to take them all.
        let share = (fitted.connections / 4).max(1);
        fitted.connections_per_address = limits.connections_per_address.min(share);
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(streams: usize, connections: usize, available: usize) -> (usize, usize) {
        let limits = Limits {
            streams,
            connections,
            ..Limits::default()
        };
        let fitted = fitted(&limits, available, false);
        (fitted.streams, fitted.connections)
    }

    #[test]
    fn limits_are_fitted_to_what_there_is() {
        // What fits stays.
        assert_eq!(of(20_000, 40_000, 65_472), (20_000, 40_000));
        assert_eq!(of(20, 40, 164), (20, 40));
        assert_eq!(of(20_000, 40_000, 239), (71, 72));
        assert_eq!(of(20, 40_000, 239), (20, 123));
        assert_eq!(of(20_000, 40, 239), (71, 40));
        assert_eq!(of(usize::MAX, usize::MAX, 0), (1, 1));
    }

    #[test]
    fn one_address_cannot_take_what_is_left() {
        let limits = Limits {
            connections_per_address: 500,
            ..Limits::default()
        };
        let plenty = fitted(&limits, usize::MAX, false);
        assert_eq!(plenty.connections_per_address, 500);
        let few = fitted(&limits, 1024, false);
        assert_eq!(few.connections_per_address, few.connections / 4);
    }

    #[test]
    fn the_pipes_of_children_are_counted_where_there_are_any() {
        let limits = Limits {
            streams: 100,
            connections: 100,
            children: 100,
            ..Limits::default()
        };
        let counts = |limits: &Limits| (limits.streams, limits.connections, limits.children);
        for (available, has_children, expected) in [
            (OWN + 200, false, (100, 100, 100)),
            (OWN + 500, true, (100, 100, 100)),
            (OWN + 499, true, (100, 100, 83)),
            (OWN + 200, true, (50, 51, 33)),
            (0, true, (1, 1, 1)),
        ] {
            let fitted = fitted(&limits, available, has_children);
            assert_eq!(counts(&fitted), expected, "{available}");
            let used = wanted(&fitted, has_children);
            assert!(available == 0 || used + OWN <= available, "{available}");
        }
    }
}
