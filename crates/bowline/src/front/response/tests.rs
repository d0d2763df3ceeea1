use std::sync::Arc;

use bowline_wire::id::SessionId;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::*;
use crate::caller::Caller;
use crate::exchange::leaving::{Departure, Leaving};
use crate::exchange::reader::Reader;
use crate::exchange::stream::{LiveStream, Source};
use crate::leg::Leg;
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::session::Session;
use crate::session::client_state::ClientState;
use crate::session::streams::ClientStream as _;

const ID: SessionId = SessionId::from_random([1; SessionId::BYTES]);

fn outlet(session: &Arc<Session>, stream: &Arc<LiveStream>) -> Outlet {
    let limit = Duration::from_secs(60);
    let (upstream, share) = (&session.upstream, &session.share);
    let departure = Departure::new(Leaving::GoesOn, upstream, share, limit);
    let reader = Reader::new(Arc::clone(stream), session.begin_use(), None, None);
    Outlet::events(reader, departure)
}

/// A stream on which nobody says anything.
fn silent(heartbeat: bool) -> (Arc<LiveStream>, ReplyBody) {
    let session = Arc::new(Session::new(
        &ID,
        Caller::Local,
        Seal::generate().unwrap(),
        Leg::idle(),
        ClientState::new(&[], None, Capabilities::default()),
    ));
    let stream = Arc::new(LiveStream::new(Source::Silent));
    let outlet = outlet(&session, &stream);
    let outlet = match heartbeat {
        true => outlet,
        false => outlet.frames(SentAs::own()),
    };
    (stream, super::stream(outlet).into_body())
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_shows_that_it_lives() {
    let (stream, mut body) = silent(true);
    let started = Instant::now();
    for beat in 1..=3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, HEARTBEAT_COMMENT);
        assert_eq!(started.elapsed().as_secs(), beat * HEARTBEAT.as_secs());
    }
    stream.end();
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_event_stream_has_no_heartbeat() {
    let (stream, mut body) = silent(false);
    let waited = tokio::time::timeout(HEARTBEAT * 10, body.frame()).await;
    assert!(waited.is_err());
    stream.end();
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_is_use_and_its_end_begins_the_idle_time() {
    let session = Arc::new(Session::new(
        &ID,
        Caller::Local,
        Seal::generate().unwrap(),
        Leg::idle(),
        ClientState::new(&[], None, Capabilities::default()),
    ));
    let stream = Arc::new(LiveStream::new(Source::Silent));
    let body = outlet(&session, &stream);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(session.idle_for(), Duration::ZERO);
    drop(body);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(session.idle_for(), Duration::from_secs(60));
}
