//! Other users of the machine at the listener of a sign-in.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::*;

/// More than there are places, many times.
const CROWD: usize = 200;

/// The status of the page that a connection leads to.
async fn status(stream: &mut TcpStream, here: SocketAddr) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {here}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let reading = timeout(Duration::from_secs(20), stream.read_to_string(&mut answer));
    reading.await.expect("an answer in time").unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn idle_connections_of_others_neither_block_the_own_user_nor_cost_a_look_each() {
    let own = Arc::new(Mutex::new(HashSet::new()));
    let readings = Arc::new(AtomicUsize::new(0));
    let (known, count) = (Arc::clone(&own), Arc::clone(&readings));
    let callback = Callback::listen_with(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        known.lock().clone()
    });
    let callback = callback.unwrap();
    let here = callback.address;
    #[expect(clippy::disallowed_methods, reason = "the test is the clients")]
    let connect = async || TcpStream::connect(here).await.unwrap();
    // Somebody of the own user's is there before the crowd, and does not say anything yet.
    let mut early = connect().await;
    own.lock().insert(early.local_addr().unwrap());
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(connect().await);
    }
    let mut late = connect().await;
    own.lock().insert(late.local_addr().unwrap());
    // There is no flow to be led on to.
    assert_eq!(status(&mut late, here).await, "400");
    assert_eq!(status(&mut early, here).await, "400");
    let mut stranger = connect().await;
    assert_eq!(status(&mut stranger, here).await, "403");
    let readings = readings.load(Ordering::SeqCst);
    assert!(readings <= CROWD / 20, "{readings}");
}
