//! Keeps idle sessions at their servers, which end a session that nobody uses and would give its client an empty one
//! at the next use. A ping is a use at the server, and none here.
//!
//! Few sessions are pinged, because clients that open one for each call leave thousands behind. There is no timer per
//! session: a sweep looks for what is due, and a round of pings follows at each server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::drain::Drain;
use crate::exchange::ping::ping;
use crate::registry::Table;
use crate::session::Session;
use crate::upstream::budget::errand;
use crate::upstream::{Carried, Endpoint, Pulse, Upstream};

/// How many sessions of one server are kept alive: those that were used last.
const MAX_KEPT: usize = 1000;

/// How many pings of one server are under way at the same time.
const AT_ONCE: usize = 8;

/// A session is pinged when this part of `keep_alive` has passed, or up to [`SPREAD`] later, so that sessions which
/// fell idle together are not pinged together. With a sweep each [`SPREAD`] that is in time.
const QUIET: (u32, u32) = (3, 4);
const SPREAD: u32 = 8;

/// Sweeps through the sessions of a gateway.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    swept: Instant,
}

// === impl KeepAlive ===

impl KeepAlive {
    pub(crate) fn new() -> Self {
        Self {
            swept: Instant::now(),
        }
    }

    /// Starts the pings that are due, if it is time to look for them.
    pub(crate) fn tend<'a>(
        &mut self,
        upstreams: impl Iterator<Item = &'a Arc<Upstream>>,
        table: &Table,
        drain: &Drain,
    ) {
        let shortest = upstreams.filter_map(|one| one.config().keep_alive).min();
        let Some(every) = shortest.map(|time| time / SPREAD) else {
            return;
        };
        if drain.has_begun() || self.swept.elapsed() < every {
            return;
        }
        self.swept = Instant::now();
        for sessions in due(table.those(is_kept)) {
            begin_round(sessions, drain.clone());
        }
    }
}

/// Whether a session is kept alive at its server, if it is among those that were used last.
fn is_kept(session: &Session) -> bool {
    let (leg, upstream) = (session.leg(), &session.upstream);
    // What lives in a process or a stream does not fall idle.
    leg.upstream_session().is_some()
        && session.seems_kept()
        && upstream.config().keep_alive.is_some()
        && !upstream.is_retired()
        && session.is_permitted()
        && !leg.endpoint.is_draining()
        && !leg.is_lost()
        && !leg.is_signed_out()
        && !session.recovery.is_under_way()
}

/// Whether the server has been sent nothing of a session for so long that it is pinged.
fn is_due(session: &Session) -> bool {
    let Some(time) = session.upstream.config().keep_alive else {
        return false;
    };
    // Ids are random. The first byte is what the table distributes them by.
    let share = u32::from(session.id.as_bytes()[1]);
    session.since_contact() >= quiet(time) + time / SPREAD / 256 * share
}

fn quiet(time: Duration) -> Duration {
    time / QUIET.1 * QUIET.0
}

/// Those that are due, endpoint by endpoint: one that hangs delays no other.
fn due(kept: Vec<Arc<Session>>) -> Vec<Vec<Arc<Session>>> {
    let mut servers: HashMap<*const Upstream, Vec<(Duration, Arc<Session>)>> = HashMap::new();
    for session in kept {
        let server = servers.entry(Arc::as_ptr(&session.upstream)).or_default();
        server.push((session.idle_for(), session));
    }
    let mut endpoints: HashMap<*const Endpoint, Vec<Arc<Session>>> = HashMap::new();
    for mut sessions in servers.into_values() {
        if sessions.len() > MAX_KEPT {
            sessions.select_nth_unstable_by_key(MAX_KEPT, |(idle, _)| *idle);
            sessions.truncate(MAX_KEPT);
        }
        let sessions = sessions.into_iter().map(|(_, session)| session);
        for session in sessions.filter(|session| is_due(session)) {
            let at: *const Endpoint = &raw const *session.leg().endpoint;
            endpoints.entry(at).or_default().push(session);
        }
    }
    endpoints.into_values().collect()
}

/// Pings these sessions at one endpoint, a few at a time, unless it is still being pinged.
fn begin_round(sessions: Vec<Arc<Session>>, drain: Drain) {
    let Some(first) = sessions.first() else {
        return;
    };
    let (tracker, endpoint) = (
        first.upstream.tracker().clone(),
        first.leg().endpoint.again(),
    );
    if endpoint.being_pinged.swap(true, Ordering::AcqRel) {
        return;
    }
    tracker.spawn(async move {
        tokio::select! {
            () = drain.begun() => {}
            () = round(sessions) => {}
        }
        endpoint.being_pinged.store(false, Ordering::Release);
    });
}

async fn round(sessions: Vec<Arc<Session>>) {
    let mut under_way = JoinSet::new();
    for session in sessions {
        if under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        under_way.spawn(async move { keep(&session).await });
    }
    under_way.join_all().await;
}

/// Pings one session. What is lost is recovered when it is used; nothing is proven by silence, and the next sweep
/// tries again.
async fn keep(session: &Arc<Session>) {
    let server = session.upstream.config();
    let Some(time) = server.keep_alive else {
        return;
    };
    // It has waited for its turn meanwhile.
    if !is_due(session) || !session.keeps_alive(quiet(time)).await || !is_kept(session) {
        return;
    }
    let leg = session.leg();
    let carried = session.carried(&Carried::default());
    let pinged = ping(&leg, &carried);
    match tokio::time::timeout(errand(&server.recovery), pinged).await {
        Ok(Pulse::Lost) => {
            leg.lose();
            session.note_on(&leg, "lost", "while it was idle".to_owned());
            tracing::info!(session = %session.hash, server = %session.upstream.name, "idle session lost: its next use recovers it");
        }
        // No other reason makes one doubt that the session lives.
        Ok(Pulse::Alive | Pulse::Refused) => session.note_contact(),
        other => {
            tracing::debug!(session = %session.hash, server = %session.upstream.name, ?other, "idle session not pinged");
        }
    }
}

#[cfg(test)]
mod tests;
