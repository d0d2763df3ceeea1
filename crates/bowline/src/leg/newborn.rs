//! An upstream session that was opened again and is nobody's yet: unless it becomes its session's, it is
//! ended, however its recovery came to nothing.

use std::sync::Arc;

use super::Leg;
use super::restore::discard;
use crate::session::Lacks;
use crate::upstream::Carried;

/// A generation before it is published. Dropped, it is ended at its server.
#[derive(Debug)]
pub(super) struct Newborn {
    leg: Arc<Leg>,
    carried: Arc<Carried>,
    stays: bool,
}

impl Newborn {
    pub(super) fn new(leg: Leg, carried: &Arc<Carried>) -> Self {
        Self {
            leg: Arc::new(leg),
            carried: Arc::clone(carried),
            stays: false,
        }
    }

    pub(super) fn leg(&self) -> &Arc<Leg> {
        &self.leg
    }

    /// What its server turned out not to have.
    pub(super) fn lacks(&mut self, lacks: Lacks) {
        // Nobody else holds the leg yet.
        if let Some(leg) = Arc::get_mut(&mut self.leg) {
            leg.lacks = lacks;
        }
    }

    /// It was published.
    pub(super) fn stays(mut self) -> Arc<Leg> {
        self.stays = true;
        Arc::clone(&self.leg)
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.stays && self.leg.has_upstream_session() {
            discard(Arc::clone(&self.leg), Arc::clone(&self.carried));
        }
    }
}
