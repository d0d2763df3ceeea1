use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::crowd::Crowd;
use super::*;
use crate::config::Limits;

fn patience(welcome: bool) -> Patience {
    let crowd = Crowd::of_clients(&Limits::default());
    let visit = crowd.enter([127, 0, 0, 1].into()).unwrap();
    if welcome {
        visit.welcome(&crate::session::Caller::Local).unwrap();
    }
    Patience::new(visit)
}

fn is_about(waited: Duration, expected: Duration) {
    let range = expected..expected + Duration::from_millis(5);
    assert!(range.contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_head_is_noticed_and_a_long_answer_is_not_one() {
    let patience = patience(true);
    let started = Instant::now();
    let over = async {
        patience.is_over().await;
        started.elapsed()
    };
    let requests = async {
        let wait = patience.sleep(REST);
        tokio::time::sleep(REST / 2).await;
        // The head came; its answer takes ten times as long as a rest may.
        drop(wait);
        tokio::time::sleep(REST * 10).await;
        (
            patience.sleep_until(patience.now() + REST),
            started.elapsed(),
        )
    };
    let (over, (_wait, waited_from)) = tokio::join!(over, requests);
    is_about(over - waited_from, REST);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_waited_for_less() {
    let patience = patience(false);
    let started = Instant::now();
    let _wait = patience.sleep(REST);
    patience.is_over().await;
    is_about(started.elapsed(), STRANGERS_REST);
}

/// However slowly it goes on.
#[tokio::test(start_paused = true)]
async fn a_head_that_has_begun_has_only_so_much_time() {
    let patience = patience(true);
    let (mut client, stream) = tokio::io::duplex(64);
    let mut stream = patience.with(stream);
    let _wait = patience.sleep(REST);
    let begun = Instant::now();
    let mut reading = pin!(async { while stream.read_u8().await.is_ok() {} });
    let mut over = pin!(patience.is_over());
    let writing = async {
        loop {
            client.write_all(b"x").await.unwrap();
            tokio::time::sleep(HEAD / 4).await;
        }
    };
    tokio::select! {
        biased;
        () = reading.as_mut() => unreachable!("the client is there"),
        () = writing => {}
        () = over.as_mut() => {}
    }
    is_about(begun.elapsed(), HEAD);
}
