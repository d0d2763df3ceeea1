use std::future::poll_fn;
use std::sync::Arc;

use bowline_wire::id::SessionId;

use super::*;
use crate::caller::Caller;
use crate::leg::Leg;
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::session::Session;
use crate::session::client_state::ClientState;
use crate::upstream::Carried;

fn session() -> Arc<Session> {
    Arc::new(Session::new(
        &SessionId::from_random([1; SessionId::BYTES]),
        Caller::Local,
        Seal::generate().unwrap(),
        Leg::idle(),
        ClientState::new(&[], None, Capabilities::default()),
    ))
}

/// A stream whose source calls `act` on the stream while it is polled.
fn opening(
    session: &Arc<Session>,
    act: impl FnOnce(&LiveStream) + Send + 'static,
) -> Arc<LiveStream> {
    Arc::new_cyclic(|stream: &std::sync::Weak<LiveStream>| {
        let stream = stream.clone();
        let source = Source::opening(async move {
            act(&stream.upgrade().unwrap());
            std::future::pending().await
        });
        let rescue = Rescue::standalone(session, Carried::default());
        LiveStream::new(source, Some(Box::new(rescue)))
    })
}

async fn next(stream: &LiveStream) -> Option<Result<Piece, StreamError>> {
    poll_fn(|cx| stream.poll_next(cx)).await
}

fn event() -> Event {
    Event::of_message("1")
}

#[tokio::test(start_paused = true)]
async fn a_source_may_send_an_event_on_its_own_stream() {
    let session = session();
    let stream = opening(&session, |stream| assert!(stream.say(&event())));
    assert_eq!(next(&stream).await.unwrap().unwrap(), Piece::Event(event()));
    // Also while only its opening is awaited.
    let stream = opening(&session, |stream| assert!(stream.say(&event())));
    let opened = tokio::time::timeout(std::time::Duration::from_secs(1), stream.opened()).await;
    assert!(opened.is_err());
    assert_eq!(next(&stream).await.unwrap().unwrap(), Piece::Event(event()));
}

#[tokio::test(start_paused = true)]
async fn a_source_may_end_its_own_stream() {
    let session = session();
    let stream = opening(&session, LiveStream::end);
    assert!(next(&stream).await.is_none());
    let stream = opening(&session, LiveStream::end);
    assert!(stream.opened().await.is_ok());
    assert!(next(&stream).await.is_none());
    assert!(!stream.say(&event()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ended_while_it_was_polled_does_not_restart() {
    let session = session();
    let stream = opening(&session, |stream| {
        stream.end();
        stream.restart();
        assert!(!stream.say(&event()));
    });
    assert!(next(&stream).await.is_none());
}
