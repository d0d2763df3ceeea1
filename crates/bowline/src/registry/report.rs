//! A session as operators see it.

use serde_json::Value;

use crate::session::Session;

/// A session with its timeline.
pub(crate) fn with_timeline(session: &Session) -> Value {
    let mut told = brief(session);
    told["timeline"] = session.timeline().into();
    told
}

pub(crate) fn brief(session: &Session) -> Value {
    let leg = session.leg();
    serde_json::json!({
        "session": session.hash.to_string(),
        "caller": session.caller.name(),
        "server": leg.upstream.name.to_string(),
        "endpoint": leg.endpoint.address.to_string(),
        "version": leg.version(),
        "generation": leg.generation.number,
        "streams": session.live_streams(),
        "age_seconds": session.age().as_secs(),
        "idle_seconds": session.idle_for().as_secs(),
    })
}
