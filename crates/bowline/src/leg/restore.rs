//! A new generation of a leg, opened and restored to what the client believes it has.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_wire::message::Message;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;

use super::budget::errand;
use super::mend::NotMended;
use super::newborn::Newborn;
use super::open::{initialized, issued_id};
use super::{Leg, LegRef};
use crate::body::Sent;
use crate::egress::Jar;
use crate::session::{Lacks, Offered, Session};
use crate::upstream::{Carried, Link, Pin, Repeat, UpstreamError};

/// After so many failures the old cookies are held to lead nowhere.
pub(super) const TRUSTED_FAILURES: u32 = 2;

/// The ids of Bowline's own requests; a client's have no such name.
const INITIALIZE_ID: &str = "\"bowline-initialize\"";
const RESTORE_ID: &str = "\"bowline-restore\"";

/// Why an attempt failed.
pub(super) enum Failed {
    /// Another attempt may do better, after a time that the server may have asked for.
    ForNow(Arc<str>, Option<Duration>),
    /// No other attempt will.
    ForGood(NotMended),
}

/// Opens the next generation of a session's leg at this endpoint.
pub(super) async fn restore(
    session: &Session,
    old: &Leg,
    endpoint: Pin,
    carried: &Arc<Carried>,
    failures: u32,
) -> Result<Newborn, Failed> {
    let keeps_cookies = endpoint.id == old.endpoint.id && failures < TRUSTED_FAILURES;
    let jar = Mutex::new(match keeps_cookies {
        true => old.jar.lock().clone(),
        false => Jar::default(),
    });
    // With the name that the caller has now, for whom it is opened.
    let account = session.upstream.account(&session.caller);
    let link = Link {
        endpoint: &endpoint,
        session_id: None,
        version: None,
        jar: &jar,
        carried,
        account: account.as_deref(),
        sign_in: keeps_cookies.then_some(old.sign_in),
        repeat: Repeat::Safe,
    };
    let initialize = initialize_of(session, old).ok_or(Failed::ForGood(NotMended::TellClient))?;
    let post = |link, initialize| session.upstream.post(link, initialize, Sent::default());
    let answer = match post(link, initialize.clone()).await {
        // The cookies are of another sign-in, and stay behind with what they were for.
        Err(UpstreamError::SessionLost) => {
            *jar.lock() = Jar::default();
            let link = Link {
                sign_in: None,
                ..link
            };
            post(link, initialize).await
        }
        answer => answer,
    };
    let answer = answer.map_err(for_now)?;
    if answer.status != StatusCode::OK {
        let why = format!("it answered `initialize` with {}", answer.status);
        return Err(Failed::ForNow(why.into(), retry_after(&answer.headers)));
    }
    let session_id = issued_id(&answer.headers).map_err(for_now)?;
    // From here on it has to be ended, whatever becomes of it.
    let mut newborn = Newborn::new(
        Leg {
            upstream: Arc::clone(&session.upstream),
            endpoint,
            at: LegRef {
                generation: old.at.generation + 1,
                ..old.at
            },
            session_id,
            version: old.version.clone(),
            jar,
            sign_in: account.as_ref().map_or(0, |account| account.sent()),
            account,
            lacks: Lacks::default(),
            lost: false.into(),
            farewell: OnceLock::new(),
        },
        carried,
    );
    let result = initialized(answer, INITIALIZE_ID, &session.upstream.reserved)
        .await
        .map_err(for_now)?;
    let offered = result
        .initialized()
        .map(|result| Offered::of(result.capabilities()))
        .unwrap_or_default();
    newborn.lacks(session.believed.offered.missing_in(offered));
    // A server that is not what it was is the client's to judge.
    let is_as_before = result.initialized().is_some_and(|result| {
        result.version == old.version() && offered.covers(session.believed.offered)
    });
    if !is_as_before {
        return Err(Failed::ForGood(NotMended::TellClient));
    }
    if let (Some(account), Some(result)) = (&newborn.leg().account, result.result()) {
        account.remember_initialized(result);
    }
    say_again(session, newborn.leg(), carried).await?;
    Ok(newborn)
}

/// Where the session goes: where it was while that takes sessions, and elsewhere if it does not, or
/// if it failed to and there is another.
pub(super) fn place(session: &Session, old: &Leg, failures: u32) -> Result<Pin, Failed> {
    let upstream = &session.upstream;
    let elsewhere = failures > 0 && upstream.has_well_endpoint_but(&old.endpoint);
    if old.endpoint.takes_sessions() && !elsewhere {
        return Ok(old.endpoint.again());
    }
    upstream.endpoints.pick().map_err(|ailment| {
        upstream.endpoints.are_needed();
        Failed::ForNow(ailment.reason, None)
    })
}

/// The client's `initialize` with the version that was agreed on, under an id of our own.
fn initialize_of(session: &Session, old: &Leg) -> Option<Bytes> {
    let message = Message::parse(Bytes::copy_from_slice(&session.believed.initialize)).ok()?;
    let renamed = Message::parse(message.splice(message.id_span()?, INITIALIZE_ID)).ok()?;
    let version = format!("\"{}\"", old.version());
    match renamed.param("protocolVersion") {
        Some(span) => Some(renamed.splice(span, &version)),
        None => Some(renamed.raw().clone()),
    }
}

/// Says again what the client had said: that it is ready, its log level, its subscriptions.
async fn say_again(session: &Session, leg: &Leg, carried: &Carried) -> Result<(), Failed> {
    if session.believed.is_initialized() {
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        say(leg, ready.into(), carried).await?;
    }
    let said = session.believed.restorable();
    if let Some(level) = said.level {
        say(leg, request("logging/setLevel", "level", &level), carried).await?;
    }
    for uri in said.subscriptions {
        say(leg, request("resources/subscribe", "uri", &uri), carried).await?;
    }
    Ok(())
}

/// Says something of the client's again on a newer generation than the one that it was said on.
pub(super) async fn say_again_on(leg: &Leg, message: &Message, carried: &Carried) {
    let Some(span) = message.id_span() else {
        return;
    };
    let saying = say(leg, message.splice(span, RESTORE_ID), carried);
    let said = tokio::time::timeout(errand(&leg.upstream.server().recovery), saying).await;
    if !matches!(said, Ok(Ok(()))) {
        tracing::debug!("what the client set was not set on the newer generation");
    }
}

fn request(method: &str, name: &str, value: &str) -> Bytes {
    let params = format!(r#"{{"{name}":{value}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":{RESTORE_ID},"method":"{method}","params":{params}}}"#).into()
}

/// Sends something of our own; what the server thinks of it is its own affair, as it was before.
async fn say(leg: &Leg, message: Bytes, carried: &Carried) -> Result<(), Failed> {
    let answer = leg
        .upstream
        .post(leg.link(carried).safe(), message, Sent::default())
        .await;
    let answer = answer.map_err(for_now)?;
    if answer.denies_session() || answer.status.is_server_error() {
        let why = format!(
            "it answered {} while its session was restored",
            answer.status
        );
        return Err(Failed::ForNow(why.into(), retry_after(&answer.headers)));
    }
    answer.read_out().await;
    Ok(())
}

fn for_now(error: UpstreamError) -> Failed {
    match error {
        UpstreamError::Refused(status) => Failed::ForGood(NotMended::Refused(status)),
        UpstreamError::SignIn(wanted) => Failed::ForGood(NotMended::SignIn(wanted)),
        error => Failed::ForNow(error.to_string().into(), None),
    }
}

/// The seconds that a server asks to be left alone.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Ends an upstream session that nobody needs, as a courtesy that nobody waits for.
pub(crate) fn discard(leg: Arc<Leg>, carried: Arc<Carried>) {
    let tracker = leg.upstream.tracker().clone();
    tracker.spawn(async move { end(&leg, &carried).await });
}

/// Ends the upstream's session of a leg, if there is one.
pub(crate) async fn end(leg: &Leg, carried: &Carried) {
    if !leg.has_upstream_session() {
        return;
    }
    let deleting = leg.upstream.delete(leg.link(carried));
    let limit = errand(&leg.upstream.server().recovery);
    match tokio::time::timeout(limit, deleting).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "upstream session not deleted"),
        Err(_) => tracing::debug!("upstream session not deleted in time"),
    }
}
