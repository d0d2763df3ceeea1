use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::connections::ConnectionLimits;
use super::*;
use crate::config::Limits;
use crate::net::Peer;

fn timeout(welcome: bool) -> HeadTimeout {
    let limits = ConnectionLimits::of_clients(&Limits::default());
    let connection = limits.admit(Peer::User(0)).unwrap();
    if welcome {
        connection.assign_to(&crate::caller::Caller::Local).unwrap();
    }
    HeadTimeout::new(connection)
}

fn is_about(waited: Duration, expected: Duration) {
    let range = expected..expected + Duration::from_millis(5);
    assert!(range.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_head_is_noticed_and_a_long_answer_is_not_one() {
    let timeout = timeout(true);
    let started = Instant::now();
    let over = async {
        timeout.elapsed().await;
        started.elapsed()
    };
    let requests = async {
        let wait = timeout.sleep(IDLE_TIMEOUT);
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        // The head arrived; the response takes ten times as long as a connection may be idle.
        drop(wait);
        tokio::time::sleep(IDLE_TIMEOUT * 10).await;
        (
            timeout.sleep_until(timeout.now() + IDLE_TIMEOUT),
            started.elapsed(),
        )
    };
    let (over, (_wait, waited_from)) = tokio::join!(over, requests);
    is_about(over - waited_from, IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_connection_is_waited_for_less() {
    let timeout = timeout(false);
    let started = Instant::now();
    let _wait = timeout.sleep(IDLE_TIMEOUT);
    timeout.elapsed().await;
    is_about(started.elapsed(), ANONYMOUS_IDLE_TIMEOUT);
}

/// A head that arrives slowly does not get more time.
#[tokio::test(start_paused = true)]
async fn a_head_that_has_begun_has_only_so_much_time() {
    let timeout = timeout(true);
    let (mut client, stream) = tokio::io::duplex(64);
    let mut stream = timeout.with(stream);
    let _wait = timeout.sleep(IDLE_TIMEOUT);
    let begun = Instant::now();
    let mut reading = pin!(async { while stream.read_u8().await.is_ok() {} });
    let mut over = pin!(timeout.elapsed());
    let writing = async {
        loop {
            client.write_all(b"x").await.unwrap();
            tokio::time::sleep(HEAD_TIMEOUT / 4).await;
        }
    };
    tokio::select! {
        biased;
        () = reading.as_mut() => unreachable!("the client is there"),
        () = writing => {}
        () = over.as_mut() => {}
    }
    is_about(begun.elapsed(), HEAD_TIMEOUT);
}
