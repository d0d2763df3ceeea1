//! What a gateway does by itself as long as it runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::config::Limits;
use crate::exchange::keep_alive::KeepAlive;
use crate::exchange::recovery::moves;
use crate::hub::Hub;
use crate::upstream::UPKEEP_INTERVAL;

/// How often sessions that are idle or too old are looked for, at the most.
const EXPIRY_EVERY: Duration = Duration::from_secs(10);

/// How often sign-ins and sign-outs on the command line are looked for.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// Often enough that a session which something uses all the time is seen in time, and that one which is too old
/// does not get much older.
fn expiry_every(limits: &Limits) -> Duration {
    let shortest = limits
        .session_idle
        .min(limits.session_max_age.unwrap_or(Duration::MAX));
    EXPIRY_EVERY.min(shortest / 4).max(Duration::from_millis(1))
}

fn move_drained(hub: &Hub) {
    let upstreams = hub.routes.all();
    upstreams.values().for_each(|one| one.errands.run());
    if !hub.drain.has_begun() && upstreams.values().any(|one| one.has_overdue_sessions()) {
        moves::move_drained(&hub.registry.table);
    }
}

/// Lets sessions expire that are idle or too old, by one task: if that takes longer than it should, nothing piles up.
pub(super) fn keep_expiring(hub: &Arc<Hub>) {
    let own = Arc::clone(hub);
    let idle = hub.limits.session_idle;
    hub.tracker.spawn(hub.drain.until_closed(async move {
        let mut expiry = tokio::time::interval(expiry_every(&own.limits));
        expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            expiry.tick().await;
            own.registry.table.keep_up();
            own.unions.expire(idle).await;
            own.registry.expire(idle).await;
            // Whom another gateway signed out, requests would find out; a stream is no request.
            for session in own.registry.table.streaming() {
                session.leg().look_if_signed_out();
            }
        }
    }));
}

/// Looks after upstreams.
pub(super) fn keep_tidy(hub: &Arc<Hub>) {
    let own = Arc::clone(hub);
    hub.tracker.spawn(hub.drain.until_closed(async move {
        let mut tend = tokio::time::interval(UPKEEP_INTERVAL);
        let mut keep_alive = KeepAlive::new();
        let mut notice = tokio::time::interval(NOTICE_EVERY);
        loop {
            tokio::select! {
                _ = tend.tick() => {
                    own.routes.tend();
                    move_drained(&own);
                    let upstreams = own.routes.all();
                    keep_alive.tend(upstreams.values(), &own.registry.table, &own.drain);
                }
                _ = notice.tick() => own.flows.notice().await,
                () = own.flows.signed_out() => own.end_streams_of_signed_out(),
            }
        }
    }));
}
