//! Which process or stream of a session ran what: one after the other, and none again after another.

use std::collections::{BTreeMap, BTreeSet};

use super::excuses;
use crate::history::{History, Ran};
use crate::server::{Server, is_over_sse};

/// Keys of what ran on a process or stream after another one of the same session had run something.
///
/// A client that speaks HTTP+SSE opens a new session when its stream ends, so it has several.
pub(super) fn used_after_another(history: &History) -> Vec<String> {
    let mut sessions = BTreeMap::<usize, Vec<(&String, &Ran)>>::new();
    for (key, all) in &history.ran {
        let Some(session) = session_of(key) else {
            continue;
        };
        let is_one_session = !is_over_sse(session);
        let server = Server::of(session);
        if is_one_session && matches!(server, Server::Processes | Server::Streams) {
            let all = all.iter().map(|ran| (key, ran));
            sessions.entry(session).or_default().extend(all);
        }
    }
    let used = sessions.into_values().flat_map(|mut used| {
        used.sort_by_key(|(_, ran)| ran.at);
        returned(&used)
    });
    let late = used.filter(|(key, ran)| !excuses::may_be_delayed(history, key, ran));
    late.map(|(key, _)| key.clone()).collect()
}

/// What ran on something that had been left for another.
fn returned<'a>(used: &[(&'a String, &'a Ran)]) -> Vec<(&'a String, &'a Ran)> {
    let (mut left, mut current) = (BTreeSet::new(), None);
    let mut returned = Vec::new();
    for (key, ran) in used {
        let leg = ran.session.as_str();
        if left.contains(leg) {
            returned.push((*key, *ran));
        } else if current != Some(leg) {
            left.extend(current.replace(leg));
        }
    }
    returned
}

/// The session whose call has this key.
fn session_of(key: &str) -> Option<usize> {
    let number = key.strip_prefix('s')?.split('/').next()?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ran(leg: &str, at: u64) -> Ran {
        Ran {
            replica: "p".to_owned(),
            session: leg.to_owned(),
            at: Duration::from_secs(at),
            finished: None,
            destructive: false,
        }
    }

    #[test]
    fn a_leg_that_was_left_is_not_used_again() {
        let key = "s10001/0-1".to_owned();
        let late = |legs: &[&str]| {
            let all: Vec<_> = legs.iter().zip(1..).map(|(leg, at)| ran(leg, at)).collect();
            let used: Vec<_> = all.iter().map(|ran| (&key, ran)).collect();
            returned(&used).len()
        };
        assert_eq!(late(&["1", "1", "2", "2", "3"]), 0);
        assert_eq!(late(&["1", "2", "1", "2", "1"]), 2);
        assert_eq!(late(&["1", "2", "3", "1"]), 1);
    }

    #[test]
    fn keys_tell_their_sessions() {
        assert_eq!(session_of("s10001/0-1"), Some(10_001));
        assert_eq!(session_of("elsewhere"), None);
    }
}
