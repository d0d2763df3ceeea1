//! A ping that asks an upstream whether it still knows a session.

use bowline_wire::compose;
use bowline_wire::message::Message;

use crate::leg::{Leg, repeat_id};
use crate::upstream::{Carried, Pulse};

pub(crate) async fn ping(leg: &Leg, carried: &Carried) -> Pulse {
    let id = repeat_id::own_id("ping");
    match Message::parse(compose::bare_request(id, "ping").into()) {
        Ok(ping) => leg.upstream.ping(leg.link(carried), &ping).await,
        Err(_) => Pulse::Alive,
    }
}
