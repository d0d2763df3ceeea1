//! This gateway's sessions: the one place where they are looked up, opened, ended and expired.

mod id_hasher;
mod lifecycle;
mod places;
pub(crate) mod presence;
mod recently_ended;
pub(crate) mod report;
mod table;
mod vacancy;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

pub(crate) use self::lifecycle::Ending;
pub(crate) use self::recently_ended::RecentlyEnded;
pub(crate) use self::table::Table;
pub(crate) use self::vacancy::Vacancy;
use crate::telemetry::Metrics;

/// A gateway's sessions, and what is needed to end one.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) table: Arc<Table>,
    /// The timelines of the sessions that ended last.
    pub(crate) recently_ended: RecentlyEnded,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracker: TaskTracker,
    /// How long an unused session is kept.
    pub(crate) idle: Duration,
    /// How long a session may last, used or not.
    pub(crate) max_age: Option<Duration>,
}
