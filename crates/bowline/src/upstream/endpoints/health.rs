//! The health of an endpoint: records its failures, and ejects a failing endpoint for a while.
//!
//! One failure to connect is enough to eject an endpoint: nothing listens there. Other failures
//! (resets, 502, 503, 504) may be caused by one tool, so several in a row are needed, and they keep
//! away only new sessions. The ejection time doubles with each ejection and is jittered, so that
//! several gateways do not return at the same time. Earlier ejections are forgotten after a healthy
//! period. If no other endpoint is available, the ejection is cut short. A command whose processes die young
//! rests all the same: each start costs more than a probe, and its answer to `initialize` is no sign of health.

use std::sync::Arc;
use std::time::Duration;

use bowline_system::jitter::jittered;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How many failures in a row eject an endpoint that still answers.
const FAILURES: u32 = 3;
/// How long the first ejection lasts, before jitter.
const FIRST_REST: Duration = Duration::from_millis(500);
/// The longest ejection, before jitter.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// The longest ejection of an endpoint that is unreachable or silent. A probe costs one connection
/// and shows when it is back.
const LONGEST_ABSENCE: Duration = Duration::from_secs(2);
/// How long an endpoint must be healthy for earlier ejections to be forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// The health of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Counts answers, to detect whether one arrived in a given period.
    answers: u64,
    ailment: Option<Ailment>,
    /// Ejections that are not forgotten yet.
    ejections: u32,
    /// When the last ejection began, and when it was due to end.
    ejected: Option<(Instant, Instant)>,
    /// When the endpoint recovered.
    well_since: Option<Instant>,
}

/// Why an endpoint accepts no new sessions at the moment.
#[derive(Debug, Clone)]
pub(crate) struct Ailment {
    /// A description, without secrets.
    pub(crate) reason: Arc<str>,
    /// Nothing accepts connections, so that requests would fail.
    pub(crate) unreachable: bool,
    /// It accepts connections and does not answer, so a successful connection is no sign of health.
    pub(crate) silent: bool,
    /// Its processes end soon after they start.
    dies_young: bool,
    /// When the next probe is due.
    pub(crate) until: Instant,
}

// === impl Health ===

impl Health {
    /// Why the endpoint is ejected, if it is.
    pub(crate) fn ailment(&self) -> Option<Ailment> {
        self.0.lock().ailment.clone()
    }

    /// Records an answer.
    pub(crate) fn answered(&self) {
        let mut state = self.0.lock();
        state.failures = 0;
        state.answers += 1;
        // An answer from an ejected endpoint is as good as a successful probe.
        let now = Instant::now();
        let is_well = |ailment: &mut Ailment| !ailment.dies_young || ailment.until <= now;
        if state.ailment.take_if(is_well).is_some() {
            state.well_since = Some(now);
        }
    }

    /// How often it has answered.
    pub(crate) fn answers(&self) -> u64 {
        self.0.lock().answers
    }

    /// Records that nothing accepts connections. Returns whether that is new.
    pub(crate) fn unreachable(&self, reason: impl Into<Arc<str>>) -> bool {
        self.0.lock().eject(reason.into(), Sort::Absent)
    }

    /// Records that it accepts connections and does not answer. Returns whether that is new.
    pub(crate) fn silent(&self, reason: impl Into<Arc<str>>) -> bool {
        self.0.lock().eject(reason.into(), Sort::Silent)
    }

    /// Records that a process ended soon after it had answered `initialize`. Returns whether that is new.
    pub(crate) fn died_young(&self, reason: impl Into<Arc<str>>) -> bool {
        self.0.lock().eject(reason.into(), Sort::DiesYoung)
    }

    /// Records a failure such as 503. Returns whether it ejected the endpoint.
    pub(crate) fn failed(&self, reason: impl Into<Arc<str>>) -> bool {
        let mut state = self.0.lock();
        state.failures += 1;
        state.failures >= FAILURES && state.eject(reason.into(), Sort::Failing)
    }

    /// Records a successful probe. Returns whether the endpoint was ejected.
    pub(crate) fn recovered(&self) -> bool {
        let mut state = self.0.lock();
        let news = state.ailment.take().is_some();
        if news {
            state.failures = 0;
            state.well_since = Some(Instant::now());
        }
        news
    }

    /// A session needs this endpoint and has no other: shortens the ejection to that of a first
    /// one.
    pub(crate) fn hurry(&self) {
        let mut state = self.0.lock();
        if let (Some((since, _)), Some(ailment)) = (state.ejected, &mut state.ailment)
            && !ailment.dies_young
        {
            ailment.until = ailment.until.min(since + FIRST_REST);
        }
    }

    /// Whether the endpoint is ejected and a probe is due.
    pub(crate) fn needs_probe(&self) -> bool {
        let state = self.0.lock();
        state
            .ailment
            .as_ref()
            .is_some_and(|ailment| ailment.until <= Instant::now())
    }
}

/// Why an endpoint is ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Absent,
    Silent,
    Failing,
    DiesYoung,
}

// === impl State ===

impl State {
    fn eject(&mut self, reason: Arc<str>, sort: Sort) -> bool {
        let now = Instant::now();
        if let Some(ailment) = &mut self.ailment
            && ailment.until > now
        {
            // Several requests met the same failure: one ejection is enough.
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
        // If concurrent requests succeed and fail, one failure ejects the endpoint several times.
        // Count it once.
        let is_same_failure = self.ejected.is_some_and(|(_, until)| now < until);
        if !is_same_failure {
            self.ejections += 1;
        }
        let doublings = self.ejections.saturating_sub(1).min(10);
        let longest = match sort {
            Sort::Absent | Sort::Silent | Sort::DiesYoung => LONGEST_ABSENCE,
            Sort::Failing => LONGEST_REST,
        };
        let rest = longest.min(FIRST_REST * 2_u32.saturating_pow(doublings));
        let until = now + jittered(rest);
        self.ejected = Some((now, until));
        let news = self.ailment.is_none();
        self.ailment = Some(Ailment {
            reason,
            unreachable: matches!(sort, Sort::Absent | Sort::DiesYoung),
            silent: sort == Sort::Silent,
            dies_young: sort == Sort::DiesYoung,
            until,
        });
        news
    }
}

// === impl Ailment ===

impl Ailment {
    /// For an upstream without any endpoint.
    pub(crate) fn nowhere() -> Self {
        Self {
            reason: "it has no known address".into(),
            unreachable: true,
            silent: false,
            dies_young: false,
            until: Instant::now() + FIRST_REST,
        }
    }

    /// Whether the endpoint still answers, so that requests may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        !self.unreachable && !self.silent
    }

    /// Whole seconds until the next probe, at least one.
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
            assert!(!health.needs_probe());
            tokio::time::advance(expected).await;
            assert!(health.needs_probe());
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
        assert!(!health.needs_probe(), "nor is it hammered");
        tokio::time::advance(FIRST_REST).await;
        assert!(health.needs_probe());
    }

    #[tokio::test(start_paused = true)]
    async fn what_dies_young_rests_whatever_it_answers_and_whoever_needs_it() {
        let health = Health::default();
        let mut expected = FIRST_REST;
        for _ in 0..9 {
            assert!(health.died_young("exited"));
            health.answered();
            health.hurry();
            assert!(!health.died_young("exited"), "one that had started, too");
            assert!(rest(&health) <= expected && rest(&health) >= expected / 2);
            tokio::time::advance(expected).await;
            health.answered();
            assert!(health.ailment().is_none());
            expected = LONGEST_ABSENCE.min(expected * 2);
        }
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
