//! Opens a new generation of a leg and restores the client's state on it.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::compose;
use bowline_wire::message::Message;
use bytes::Bytes;

use crate::exchange::memory::RESTORE_ID;
use crate::exchange::open_leg::{LegOpening, Newborn, NotOpened, OpenedLeg};
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::leg::{Generation, Leg};
use crate::session::Session;
use crate::session::recovery::RecoveryError;
use crate::upstream::{Carried, Pin, UpstreamError};
use bowline_egress::{Jar, Sent};

/// After this many failures the old cookies are dropped.
pub(crate) const TRUSTED_FAILURES: u32 = 2;

/// The id of Bowline's own `initialize`. Clients do not use this prefix.
const INITIALIZE_ID: &str = "\"bowline-initialize\"";

/// Why an attempt failed.
pub(crate) enum Failed {
    /// A retry may succeed, after the delay that the server may have asked for.
    ForNow(Arc<str>, Option<Duration>),
    /// The session that was opened a moment ago is unknown to whoever got its next message.
    Stray(Arc<str>),
    /// A retry would not help.
    ForGood(RecoveryError),
}

/// Opens the next generation of a session's leg at this endpoint.
pub(crate) async fn restore(
    session: &Session,
    old: &Leg,
    endpoint: &Pin,
    carried: &Carried,
    failures: u32,
) -> Result<Newborn, Failed> {
    let seal = Seal::generate().map_err(|_| Failed::ForGood(RecoveryError::TellClient))?;
    let initialize =
        initialize_of(session, old).ok_or(Failed::ForGood(RecoveryError::TellClient))?;
    // Under the caller's current account.
    let account = session.upstream.account(&session.caller);
    let keeps_cookies = !old.has_other_credentials()
        && endpoint.id == old.endpoint.id
        && failures < TRUSTED_FAILURES;
    let opening = LegOpening {
        upstream: &session.upstream,
        endpoint,
        generation: Generation {
            number: old.generation.number + 1,
            ..old.generation
        },
        caller: &session.caller,
        account: account.as_ref(),
        message: &initialize,
        carried,
        jar: match keeps_cookies {
            true => old.jar(),
            false => Jar::default(),
        },
        jar_credentials: keeps_cookies.then_some(old.credentials),
        // No client sees the answer.
        seal: &seal,
        sent: Sent::default(),
    };
    let OpenedLeg {
        mut newborn,
        answer,
        ..
    } = opening.open().await.map_err(not_opened)?;
    let capabilities = answer
        .initialized()
        .map(|result| Capabilities::of(result.capabilities()))
        .unwrap_or_default();
    newborn.missing_lists(session.client_state.capabilities.missing_in(capabilities));
    // If the server has changed, the client must re-initialize.
    let is_as_before = answer.initialized().is_some_and(|result| {
        result.version == old.version() && capabilities.covers(session.client_state.capabilities)
    });
    if !is_as_before {
        return Err(Failed::ForGood(RecoveryError::TellClient));
    }
    restore_state(session, newborn.leg(), carried).await?;
    Ok(newborn)
}

fn not_opened(why: NotOpened) -> Failed {
    match why {
        NotOpened::Failed(error) => for_now(error),
        NotOpened::Declined(declination) => {
            let why = declination.error().to_string();
            Failed::ForNow(why.into(), declination.asked_for())
        }
    }
}

/// The endpoint for the new generation: the old one while it accepts sessions, or another one if it does not,
/// or if it failed and another is healthy.
pub(crate) fn endpoint_for(session: &Session, old: &Leg, failures: u32) -> Result<Pin, Failed> {
    let upstream = &session.upstream;
    let elsewhere = failures > 0 && upstream.has_healthy_endpoint_besides(&old.endpoint);
    if old.endpoint.takes_sessions() && !elsewhere {
        return Ok(old.endpoint.again());
    }
    let picked = upstream.endpoints.pick_avoiding(Some(&old.endpoint));
    picked.map_err(|ailment| {
        upstream.endpoints.hurry();
        Failed::ForNow(ailment.reason, None)
    })
}

/// The client's `initialize` with the agreed version and an id of Bowline's own.
fn initialize_of(session: &Session, old: &Leg) -> Option<Message> {
    let message = Message::parse(Bytes::copy_from_slice(&session.client_state.initialize)).ok()?;
    let initialize = Message::parse(message.splice(message.id_span()?, INITIALIZE_ID)).ok()?;
    let version = format!("\"{}\"", old.version());
    match initialize.param("protocolVersion") {
        Some(span) => Message::parse(initialize.splice(span, &version)).ok(),
        None => Some(initialize),
    }
}

/// Restores the client's state: `notifications/initialized`, its log level, its subscriptions.
async fn restore_state(session: &Session, leg: &Leg, carried: &Carried) -> Result<(), Failed> {
    if session.client_state.is_initialized() {
        let ready = compose::bare_notification("notifications/initialized");
        send(leg, ready.into(), carried).await?;
    }
    let state = session.client_state.restorable();
    if let Some(level) = state.level {
        send(leg, request("logging/setLevel", "level", &level), carried).await?;
    }
    for uri in state.subscriptions {
        send(leg, request("resources/subscribe", "uri", &uri), carried).await?;
    }
    Ok(())
}

fn request(method: &str, name: &str, value: &str) -> Bytes {
    let params = format!(r#"{{"{name}":{value}}}"#);
    compose::request(RESTORE_ID, method, params).into()
}

/// Sends one of Bowline's own messages. An error response is ignored: the client got it the first time.
async fn send(leg: &Leg, message: Bytes, carried: &Carried) -> Result<(), Failed> {
    let link = leg.link(carried).safe();
    let said = leg.upstream.say(link, message).await.map_err(for_now)?;
    match said {
        Ok(()) => Ok(()),
        Err(refused) if refused.denies_session => Err(Failed::Stray(refused.why.into())),
        Err(refused) => Err(Failed::ForNow(refused.why.into(), refused.asked_for)),
    }
}

pub(crate) fn for_now(error: UpstreamError) -> Failed {
    match error {
        UpstreamError::Refused(status) | UpstreamError::RefusedOverSse(status, _) => {
            Failed::ForGood(RecoveryError::Refused(status))
        }
        UpstreamError::SignIn(wanted) => Failed::ForGood(RecoveryError::SignIn(wanted)),
        error if error.is_stray() => Failed::Stray(error.to_string().into()),
        error => Failed::ForNow(error.to_string().into(), None),
    }
}
