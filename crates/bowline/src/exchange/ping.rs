//! A ping that asks an upstream whether it still knows a session.

use bowline_wire::compose;
use bowline_wire::message::Message;

use crate::leg::{Leg, repeat_id};
use crate::upstream::{Carried, Pulse};

pub(crate) async fn ping(leg: &Leg, carried: &Carried) -> Pulse {
    match message() {
        Some(ping) => leg.upstream.ping(leg.link(carried), &ping).await,
        None => Pulse::Alive,
    }
}

/// A call on this leg got no answer in time: a transport that can tell whether its server hangs does so.
pub(crate) async fn doubt(leg: &Leg, carried: &Carried) {
    if let Some(ping) = message() {
        leg.upstream.doubt(leg.link(carried), &ping).await;
    }
}

fn message() -> Option<Message> {
    let id = repeat_id::own_id("ping");
    Message::parse(compose::bare_request(id, "ping").into()).ok()
}
