//! How an endpoint feels: what it did is noted, and an endpoint that fails is left alone for a while.
//!
//! One failure to connect is enough: nobody is there. Failures after that (resets, 502, 503, 504)
//! may be one tool's, so it takes several in a row, and only new sessions keep away. How long an
//! endpoint is left alone doubles with every time and is jittered, so that several gateways do not
//! come back together; a while of health forgets the past. A rest spares an endpoint that others
//! stand in for: where nobody does, it is short.

use std::sync::Arc;
use std::time::Duration;

use bowline_system::jitter::jittered;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How many failures in a row make an endpoint that answers one that is failing.
const FAILURES: u32 = 3;
/// How long the first ejection lasts, before jitter.
const FIRST_REST: Duration = Duration::from_millis(500);
/// The longest ejection, before jitter.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// The same where nobody was there or answered: a look shows when somebody does again, and costs one
/// connection.
const LONGEST_ABSENCE: Duration = Duration::from_secs(2);
/// How long an endpoint must be well for earlier ejections to be forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// The health of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// How often it answered, to tell whether it did meanwhile.
    answers: u64,
    ailment: Option<Ailment>,
    /// Ejections so far, as far as they are remembered.
    ejections: u32,
    /// When the last one began, and when it was to end.
    ejected: Option<(Instant, Instant)>,
    /// When the endpoint came back.
    well_since: Option<Instant>,
}

/// Why an endpoint takes no sessions at the moment.
#[derive(Debug, Clone)]
pub(crate) struct Ailment {
    /// In words, without secrets.
    pub(crate) reason: Arc<str>,
    /// Whether nobody is there, so that trying is in vain.
    pub(crate) unreachable: bool,
    /// Whether somebody is there who answers nothing: a connection is no sign of health.
    pub(crate) silent: bool,
    /// When it is worth another look.
    pub(crate) until: Instant,
}

// === impl Health ===

impl Health {
    /// Why the endpoint is ejected, if it is.
    pub(crate) fn ailment(&self) -> Option<Ailment> {
        self.0.lock().ailment.clone()
    }

    /// An answer came.
    pub(crate) fn answered(&self) {
        let mut state = self.0.lock();
        state.failures = 0;
        state.answers += 1;
        // An answer from an endpoint that was given up is as good as a probe.
        if state.ailment.take().is_some() {
            state.well_since = Some(Instant::now());
        }
    }

    /// How often it has answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.0.lock().answers
    }

    /// Nobody is there. Returns whether that is news.
    pub(crate) fn unreachable(&self, reason: impl Into<Arc<str>>) -> bool {
        self.0.lock().eject(reason.into(), Sort::Absent)
    }

    /// It takes connections and answers nothing. Returns whether that is news.
    pub(crate) fn silent(&self, reason: impl Into<Arc<str>>) -> bool {
        self.0.lock().eject(reason.into(), Sort::Silent)
    }

    /// It answered, but as servers do that are about to die. Returns whether it is ejected now.
    pub(crate) fn failed(&self, reason: impl Into<Arc<str>>) -> bool {
        let mut state = self.0.lock();
        state.failures += 1;
        state.failures >= FAILURES && state.eject(reason.into(), Sort::Failing)
    }

    /// A probe found it well.
    pub(crate) fn recovered(&self) -> bool {
        let mut state = self.0.lock();
        let news = state.ailment.take().is_some();
        if news {
            state.failures = 0;
            state.well_since = Some(Instant::now());
        }
        news
    }

    /// Somebody waits for it and has nowhere else to go: its rest is not longer than a first one.
    pub(crate) fn hurry(&self) {
        let mut state = self.0.lock();
        if let (Some((since, _)), Some(ailment)) = (state.ejected, &mut state.ailment) {
            ailment.until = ailment.until.min(since + FIRST_REST);
        }
    }

    /// Whether it is time for a probe: of an ejected endpoint when its rest is over.
    pub(crate) fn wants_look(&self) -> bool {
        let state = self.0.lock();
        state
            .ailment
            .as_ref()
            .is_some_and(|ailment| ailment.until <= Instant::now())
    }
}

/// What sort of ailment it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Absent,
    Silent,
    Failing,
}

// === impl State ===

impl State {
    fn eject(&mut self, reason: Arc<str>, sort: Sort) -> bool {
        let now = Instant::now();
        if let Some(ailment) = &mut self.ailment
            && ailment.until > now
        {
            // Several requests met the same failure; one ejection is enough.
            ailment.silent |= sort == Sort::Silent;
            if sort == Sort::Absent {
                ailment.unreachable = true;
                ailment.until = ailment.until.min(now + jittered(LONGEST_ABSENCE));
            }
            return false;
        }
        if self
            .well_since
            .is_some_and(|since| now - since > FORGIVEN_AFTER)
        {
            self.ejections = 0;
        }
        // Requests that end well and badly side by side eject it several times for one failure.
        let is_the_same = self.ejected.is_some_and(|(_, until)| now < until);
        if !is_the_same {
            self.ejections += 1;
        }
        let doublings = self.ejections.saturating_sub(1).min(10);
        let longest = match sort {
            Sort::Absent | Sort::Silent => LONGEST_ABSENCE,
            Sort::Failing => LONGEST_REST,
        };
        let rest = longest.min(FIRST_REST * 2_u32.saturating_pow(doublings));
        let until = now + jittered(rest);
        self.ejected = Some((now, until));
        let news = self.ailment.is_none();
        self.ailment = Some(Ailment {
            reason,
            unreachable: sort == Sort::Absent,
            silent: sort == Sort::Silent,
            until,
        });
        news
    }
}

// === impl Ailment ===

impl Ailment {
    /// There is no endpoint at all.
    pub(crate) fn nowhere() -> Self {
        Self {
            reason: "it has no address".into(),
            unreachable: true,
            silent: false,
            until: Instant::now() + FIRST_REST,
        }
    }

    /// Whether somebody is there and answers, if not well.
    pub(crate) fn is_passing(&self) -> bool {
        !self.unreachable && !self.silent
    }

    /// Whole seconds until it is worth another try, at least one.
    pub(crate) fn retry_after(&self) -> u32 {
        let rest = self.until.saturating_duration_since(Instant::now());
        u32::try_from(rest.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(health: &Health) -> Duration {
        health.ailment().unwrap().until - Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_there_ejects_at_once_and_longer_every_time() {
        let health = Health::default();
        let mut expected = FIRST_REST;
        for _ in 0..10 {
            assert!(health.unreachable("refused"));
            assert!(
                !health.unreachable("refused"),
                "the same failure, met by another request"
            );
            assert!(rest(&health) <= expected && rest(&health) >= expected / 2);
            assert!(!health.wants_look());
            tokio::time::advance(expected).await;
            assert!(health.wants_look());
            assert!(health.recovered());
            expected = LONGEST_ABSENCE.min(expected * 2);
        }
        tokio::time::advance(FORGIVEN_AFTER + Duration::from_secs(1)).await;
        health.unreachable("refused");
        assert!(rest(&health) <= FIRST_REST, "health is remembered, too");
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_that_many_meet_counts_once() {
        let health = Health::default();
        for _ in 0..10 {
            assert!(health.unreachable("refused"));
            health.answered();
            tokio::time::advance(FIRST_REST / 100).await;
        }
        health.unreachable("refused");
        assert!(rest(&health) <= FIRST_REST, "{:?}", rest(&health));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_needed_does_not_rest_for_long() {
        let health = Health::default();
        let mut ejections = 0;
        while ejections < 8 {
            ejections += u32::from(health.failed("503"));
            tokio::time::advance(LONGEST_REST / 4).await;
            health.recovered();
        }
        while !health.failed("503") {}
        assert!(rest(&health) > FIRST_REST, "{:?}", rest(&health));
        health.hurry();
        assert!(!health.wants_look(), "nor is it hammered");
        tokio::time::advance(FIRST_REST).await;
        assert!(health.wants_look());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_takes_several_in_a_row() {
        let health = Health::default();
        for _ in 0..5 {
            assert!(!health.failed("503") && !health.failed("503"));
            health.answered();
        }
        assert!(!health.failed("503") && !health.failed("503"));
        assert!(health.failed("503"));
        assert!(!health.ailment().unwrap().unreachable);
        health.answered();
        assert!(
            health.ailment().is_none(),
            "an answer is as good as a probe"
        );
    }
}
