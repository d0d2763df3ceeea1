use bowline_wire::id::SessionId;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::*;
use crate::leg::Leg;
use crate::session::{Believed, Caller, Offered, Seal, Source};

const ID: SessionId = SessionId::from_random([1; SessionId::BYTES]);

/// A stream on which nobody says anything.
fn silent(heartbeat: bool) -> (Arc<LiveStream>, ReplyBody) {
    let session = Arc::new(Session::new(
        &ID,
        Caller::Local,
        Seal::generate().unwrap(),
        Leg::idle(),
        Believed::new(&[], None, Offered::default()),
    ));
    let stream = Arc::new(LiveStream::new(Source::Silent, None));
    let body = StreamBody::new(
        Arc::clone(&stream),
        session.begin_use(),
        Abandoned::new(&session.upstream, &session.share, Duration::from_secs(60)),
        None,
    );
    let body = if heartbeat {
        body.with_heartbeat()
    } else {
        body
    };
    (stream, ReplyBody::Stream(Box::new(body)))
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
        Believed::new(&[], None, Offered::default()),
    ));
    let stream = Arc::new(LiveStream::new(Source::Silent, None));
    let body = StreamBody::new(
        stream,
        session.begin_use(),
        Abandoned::new(&session.upstream, &session.share, Duration::from_secs(60)),
        None,
    );
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(session.idle_for(), Duration::ZERO);
    drop(body);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(session.idle_for(), Duration::from_secs(60));
}
