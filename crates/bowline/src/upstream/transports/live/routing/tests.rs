use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;

fn message(text: &str) -> Message {
    Message::from_server(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn request(id: u32, token: Option<&str>) -> Message {
    let meta = token.map_or(String::new(), |token| {
        format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#)
    });
    let params = match meta.is_empty() {
        true => String::new(),
        false => format!(r#","params":{meta}"#),
    };
    message(&format!(r#"{{"id":{id},"method":"tools/call"{params}}}"#))
}

fn next(inbox: &Inbox) -> Option<String> {
    match inbox.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(raw)) => Some(String::from_utf8(raw.to_vec()).unwrap()),
        _ => None,
    }
}

#[tokio::test]
async fn answers_find_their_calls_whatever_the_spelling_and_only_once() {
    let routing = Routing::default();
    let one = routing.call(&request(1, None), true).unwrap();
    let two = routing.call(&request(2, None), true).unwrap();
    for (text, routed) in [
        (r#"{"id":2.0,"result":{}}"#, Routed::Done),
        (r#"{"id":2,"result":{}}"#, Routed::Stray),
        (r#"{"id":"1","result":{}}"#, Routed::Done),
        (r#"{"id":9,"result":{}}"#, Routed::Stray),
        (r#"{"id":null,"error":{}}"#, Routed::Stray),
    ] {
        assert_eq!(routing.deliver(&message(text)).await, routed, "{text}");
    }
    assert!(next(&one).is_some() && next(&one).is_none());
    assert!(next(&two).is_some() && next(&two).is_none());
}

#[tokio::test]
async fn an_error_without_an_id_that_may_be_about_a_notification_ends_no_call() {
    let routing = Routing::default();
    let error = message(r#"{"id":null,"error":{}}"#);
    routing.tell();
    let one = routing.call(&request(1, None), true).unwrap();
    assert_eq!(routing.deliver(&error).await, Routed::Stray);
    assert!(next(&one).is_none());
    // One error for each.
    assert_eq!(routing.deliver(&error).await, Routed::Done);
    assert!(next(&one).is_some());
    // The answer to what was sent after it shows that the server is done with it.
    routing.tell();
    let two = routing.call(&request(2, None), true).unwrap();
    let three = routing.call(&request(3, None), true).unwrap();
    routing.deliver(&message(r#"{"id":2,"result":{}}"#)).await;
    assert!(next(&two).is_some());
    assert_eq!(routing.deliver(&error).await, Routed::Done);
    assert!(next(&three).is_some());
}

#[tokio::test]
async fn progress_goes_to_its_call_and_what_is_nobodys_to_the_listener_else_to_the_newest_call() {
    let routing = Routing::default();
    let one = routing.call(&request(1, Some("\"a\"")), true).unwrap();
    let two = routing.call(&request(2, Some("7")), true).unwrap();
    let own = routing.call(&request(3, None), false).unwrap();
    let progress = |token: &str| {
        message(&format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":{token}}}}}"#
        ))
    };
    routing.deliver(&progress("\"a\"")).await;
    routing.deliver(&progress("7")).await;
    routing.deliver(&message(r#"{"method":"log"}"#)).await;
    assert!(next(&one).unwrap().contains("\"a\"") && next(&one).is_none());
    assert!(next(&two).unwrap().contains(":7"));
    assert!(next(&two).unwrap().contains("log"));
    assert!(next(&own).is_none(), "Bowline's own call is shown nothing");
    let (listener, held) = routing.listen().unwrap();
    assert!(held.is_empty());
    routing.deliver(&message(r#"{"method":"log"}"#)).await;
    assert!(next(&listener).is_some() && next(&two).is_none());
}

/// It was given up, or repeated under a token of its own: nobody else is shown its progress.
#[tokio::test]
async fn progress_of_a_call_that_was_given_up_is_for_nobody() {
    let routing = Routing::default();
    let left = routing.call(&request(1, Some("7")), true).unwrap();
    let other = routing.call(&request(2, Some("8")), true).unwrap();
    let progress = |token: u32| {
        message(&format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        ))
    };
    // Also if its reader has not left yet, and only knows that it failed.
    left.finish(Over::NotTaken("".into()));
    assert_eq!(routing.deliver(&progress(7)).await, Routed::Done);
    let (listener, held) = routing.listen().unwrap();
    routing.leave(&left);
    assert_eq!(routing.deliver(&progress(7)).await, Routed::Done);
    assert!(held.is_empty() && next(&listener).is_none() && next(&other).is_none());
    // A client may use the token again.
    let again = routing.call(&request(3, Some("7")), true).unwrap();
    routing.deliver(&progress(7)).await;
    assert!(next(&again).is_some());
    // What goes on after its answer, as a task does, is told on the stream of the GET.
    let answer = message(r#"{"id":3,"result":{}}"#);
    routing.deliver(&answer).await;
    routing.leave(&again);
    routing.deliver(&progress(7)).await;
    assert!(next(&listener).is_some());
}

#[tokio::test]
async fn what_nobody_can_be_shown_waits_within_bounds() {
    let routing = Routing::default();
    let question = message(r#"{"id":1,"method":"roots/list"}"#);
    assert_eq!(routing.deliver(&question).await, Routed::Done);
    let mut dropped = 0;
    for _ in 0..1000 {
        let routed = routing.deliver(&message(r#"{"method":"log"}"#)).await;
        dropped += usize::from(routed == Routed::Dropped);
    }
    assert_eq!(dropped, 1001 - MOST_HELD);
    assert_eq!(
        routing.unasked(),
        std::slice::from_ref(&question),
        "the server waits for it"
    );
    let (listener, held) = routing.listen().unwrap();
    assert_eq!(held.len(), MOST_HELD - 1);
    // A question that a stream took with it is asked on the next one.
    routing.deliver(&question).await;
    routing.leave(&listener);
    assert_eq!(routing.unasked(), [question]);
}

#[tokio::test]
async fn a_cancelled_call_is_over_and_its_late_answer_no_surprise() {
    let routing = Routing::default();
    let call = routing.call(&request(1, None), true).unwrap();
    routing.cancel(RawId::new("1"));
    assert!(matches!(
        call.poll_next(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Err(Over::Cancelled))
    ));
    let late = message(r#"{"id":1,"result":{}}"#);
    assert_eq!(routing.deliver(&late).await, Routed::Done);
    assert_eq!(routing.deliver(&late).await, Routed::Stray);
}

#[tokio::test]
async fn an_end_ends_everything_once() {
    let routing = Routing::default();
    let call = routing.call(&request(1, None), true).unwrap();
    let end = Arc::new(End::new("exit code 1", bowline_children::Tail::default()));
    assert!(routing.end(&end) && !routing.end(&end));
    assert!(matches!(
        call.poll_next(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Err(Over::Ended(_)))
    ));
    assert!(routing.call(&request(2, None), true).is_err());
    assert!(routing.listen().is_err() && routing.ended().is_some());
}

#[test]
fn an_answer_is_that_of_the_request_with_exactly_its_id() {
    let asked = ["100", r#""100""#].map(RawId::new);
    let by = |id: &str| answered_by(RawId::new(id), asked.into_iter());
    assert_eq!([by("100"), by(r#""100""#)], [Some(0), Some(1)]);
    let only = |id: &str| answered_by(RawId::new(id), asked[..1].iter().copied());
    assert_eq!([only(r#""100""#), only("101")], [Some(0), None]);
}
