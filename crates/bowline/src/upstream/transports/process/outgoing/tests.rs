use tokio::io::AsyncReadExt as _;
use tokio::io::{DuplexStream, duplex};

use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

fn to(stdin: DuplexStream) -> (Outgoing, CancellationToken) {
    let (outgoing, writer) = outgoing(Some(stdin), || true);
    let closing = CancellationToken::new();
    let tracker = tokio_util::task::TaskTracker::new();
    tracker.spawn(writer.run(closing.clone()));
    (outgoing, closing)
}

#[tokio::test]
async fn nothing_but_the_first_is_written_while_the_session_may_be_anothers() {
    let (stdin, mut child) = duplex(1024);
    let (outgoing, writer) = outgoing(Some(stdin), || false);
    let closing = CancellationToken::new();
    let tracker = tokio_util::task::TaskTracker::new();
    tracker.spawn(writer.run(closing.clone()));
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    let write = |text| outgoing.write(text, Sent::default(), PATIENCE);
    assert_eq!(write(&first).await, Ok(()));
    assert_eq!(write(&second).await, Err(NotWritten::Unsure));
    closing.cancel();
    let mut read = String::new();
    child.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, "first\n");
}

#[tokio::test]
async fn each_message_is_one_line() {
    let (stdin, mut child) = duplex(1024);
    let (outgoing, closing) = to(stdin);
    let message = Bytes::from_static(b"{\n  \"a\":\r\n1}");
    let sent = Sent::default();
    outgoing
        .write(&message, sent.clone(), PATIENCE)
        .await
        .unwrap();
    assert!(sent.get());
    closing.cancel();
    let mut read = String::new();
    child.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, "{   \"a\":  1}\n");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_read_is_told_from_one_that_is_gone() {
    let (stdin, child) = duplex(8);
    let (outgoing, _closing) = to(stdin);
    let long = Bytes::from_static(b"0123456789abcdef");
    let first = {
        let outgoing = outgoing.clone();
        let tracker = tokio_util::task::TaskTracker::new();
        tracker.spawn(async move { outgoing.write(&long, Sent::default(), PATIENCE).await })
    };
    tokio::task::yield_now().await;
    let (sent, short) = (Sent::default(), Bytes::from_static(b"x"));
    let second = outgoing.write(&short, sent.clone(), PATIENCE).await;
    assert_eq!(second, Err(NotWritten::NotRead));
    assert!(!sent.get());
    drop(child);
    let was_written = true;
    assert_eq!(
        first.await.unwrap(),
        Err(NotWritten::Broken { was_written })
    );
    let third = outgoing.write(&short, sent.clone(), PATIENCE).await;
    let was_written = false;
    assert_eq!(third, Err(NotWritten::Broken { was_written }));
}

#[tokio::test]
async fn a_line_that_was_begun_is_finished_for_nobody_and_the_next_one_follows_it() {
    let (stdin, mut child) = duplex(4);
    let (outgoing, closing) = to(stdin);
    let (long, next) = (
        Bytes::from_static(b"0123456789"),
        Bytes::from_static(b"next"),
    );
    {
        let mut begun = Box::pin(outgoing.write(&long, Sent::default(), PATIENCE));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(begun.as_mut().poll(&mut cx).is_pending());
        // Its caller leaves.
    }
    let writing = async {
        outgoing
            .write(&next, Sent::default(), PATIENCE)
            .await
            .unwrap();
        closing.cancel();
    };
    let mut read = String::new();
    let (_, count) = tokio::join!(writing, child.read_to_string(&mut read));
    count.unwrap();
    assert_eq!(read, "0123456789\nnext\n");
    assert_eq!(outgoing.pipe.lock().waiting, 0);
}
