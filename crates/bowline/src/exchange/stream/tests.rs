use std::future::poll_fn;
use std::sync::Arc;

use super::*;
/// A stream whose source calls `act` on the stream while it is polled.
fn opening(act: impl FnOnce(&LiveStream) + Send + 'static) -> Arc<LiveStream> {
    Arc::new_cyclic(|stream: &std::sync::Weak<LiveStream>| {
        let stream = stream.clone();
        let source = Source::opening(async move {
            act(&stream.upgrade().unwrap());
            std::future::pending().await
        });
        LiveStream::new(source)
    })
}

async fn next(stream: &LiveStream) -> Option<Result<Piece, Halt>> {
    poll_fn(|cx| stream.poll_next(cx)).await
}

async fn opened(stream: &LiveStream) -> Result<(), NotOpen> {
    poll_fn(|cx| stream.poll_open(cx)).await
}

fn event() -> Event {
    Event::of_message("1")
}

#[tokio::test(start_paused = true)]
async fn a_source_may_send_an_event_on_its_own_stream() {
    let stream = opening(|stream| assert!(stream.say(&event())));
    assert_eq!(next(&stream).await.unwrap().unwrap(), Piece::Event(event()));
    // Also while only its opening is awaited.
    let stream = opening(|stream| assert!(stream.say(&event())));
    let opened = tokio::time::timeout(std::time::Duration::from_secs(1), opened(&stream)).await;
    assert!(opened.is_err());
    assert_eq!(next(&stream).await.unwrap().unwrap(), Piece::Event(event()));
}

#[tokio::test(start_paused = true)]
async fn a_source_may_end_its_own_stream() {
    let stream = opening(LiveStream::end);
    assert!(next(&stream).await.is_none());
    let stream = opening(LiveStream::end);
    assert!(opened(&stream).await.is_ok());
    assert!(next(&stream).await.is_none());
    assert!(!stream.say(&event()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ended_while_it_was_polled_does_not_restart() {
    let stream = opening(|stream| {
        stream.end();
        stream.restart();
        assert!(!stream.say(&event()));
    });
    assert!(next(&stream).await.is_none());
}
