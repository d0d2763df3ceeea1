//! What is sent to the listener of gateways by somebody who should not: copies, loops, lies and nonsense.

use std::sync::Arc;

use bowline::Forgery;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fleet::{Fleet, SECRET, calling};
use crate::kit::client::Client;

/// Posts bytes where gateways forward to; the status and the body.
async fn post(fleet: &Fleet, body: Vec<u8>) -> (u16, Vec<u8>) {
    let url = format!("http://{}/forward", fleet.gateways[0].peers().unwrap());
    let sent = reqwest::Client::new().post(url).body(body).send();
    let response = sent.await.unwrap();
    let status = response.status().as_u16();
    (status, response.bytes().await.unwrap().to_vec())
}

/// A forward of a call in the session, as a gateway would send it.
async fn forgery(fleet: &Fleet, key: &str) -> Forgery {
    let session = fleet.client.session.as_ref().unwrap().to_str().unwrap();
    Forgery {
        to: fleet.name(0).await,
        from: "0123456789abcdef".to_owned(),
        number: 1,
        hops: 1,
        head: json!({"operation": "request", "session": session, "server": "s", "generation": 1}),
        body: calling(1, "bump", &json!({ "key": key })).to_string(),
    }
}

/// What a gateway answers to a forward of somebody who knows the secret.
async fn answered(fleet: &Fleet, forged: &Forgery) -> String {
    let (status, body) = post(fleet, forged.sealed(SECRET).unwrap()).await;
    assert_eq!(status, 200);
    forged.opened(SECRET, body).unwrap().join("\n")
}

#[tokio::test]
async fn a_forward_counts_once_and_only_for_its_gateway_and_secret() {
    let Some(fleet) = Fleet::start(1).await else {
        return;
    };
    let fleet = fleet.open().await;
    let first = forgery(&fleet, "once").await;
    let sealed = first.sealed(SECRET).unwrap();
    // The control: this is what a gateway sends.
    let (status, body) = post(&fleet, sealed.clone()).await;
    assert_eq!(status, 200);
    let records = first.opened(SECRET, body).unwrap();
    assert!(
        records[0].contains("Accepted") && records[1].contains("Whole"),
        "{records:?}"
    );
    assert!(records.last().unwrap().contains("Done"), "{records:?}");
    assert_eq!(fleet.tally.count("bump once"), 1);
    for _ in 0..3 {
        let (status, body) = post(&fleet, sealed.clone()).await;
        assert_eq!(
            (status, body.len()),
            (409, 0),
            "a copy gets nothing that is sealed"
        );
    }
    let again = Forgery {
        number: 2,
        ..first.clone()
    };
    let mut changed = again.sealed(SECRET).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    let number = again.to.len() + again.from.len() + 10;
    let mut renumbered = sealed.clone();
    renumbered[number] = 9;
    for (body, status) in [
        (
            again
                .sealed("a secret that is not the secret of these")
                .unwrap(),
            401,
        ),
        (changed, 401),
        (renumbered, 401),
        (
            Forgery {
                to: "another".to_owned(),
                ..again.clone()
            }
            .sealed(SECRET)
            .unwrap(),
            421,
        ),
        (b"nonsense".to_vec(), 400),
        (Vec::new(), 400),
    ] {
        assert_eq!(post(&fleet, body).await.0, status);
    }
    assert_eq!(fleet.tally.count("bump once"), 1);
    assert!(fleet.count(0, "forwards_received", "replayed").await >= 3);
}

#[tokio::test]
async fn a_forward_that_loops_is_refused() {
    let Some(fleet) = Fleet::start(1).await else {
        return;
    };
    let fleet = fleet.open().await;
    let forged = forgery(&fleet, "loop").await;
    for looped in [
        Forgery {
            hops: 2,
            ..forged.clone()
        },
        Forgery {
            hops: 0,
            number: 2,
            ..forged.clone()
        },
        Forgery {
            from: forged.to.clone(),
            ..forged.clone()
        },
    ] {
        let records = answered(&fleet, &looped).await;
        assert!(
            records.contains("Refused") && !records.contains("Accepted"),
            "{records}"
        );
    }
    assert_eq!(fleet.tally.count("bump loop"), 0);
}

#[tokio::test]
async fn a_peer_that_lies_is_refused() {
    let key = "a-key-of-ann-and-of-nobody-else";
    let named = |name: &str, key: &str| {
        let key = bowline::config::KeyHash::of(key.as_bytes());
        (
            name.parse().unwrap(),
            bowline::config::Caller::with_key(key),
        )
    };
    let started = Fleet::start_with(1, |_, config| {
        config.callers.extend([
            named("ann", key),
            named("bob", "a-key-of-bob-and-of-nobody"),
        ]);
    });
    let Some(mut fleet) = started.await else {
        return;
    };
    fleet.client = Client::new(&fleet.gateways[0]).with_key(key);
    let fleet = fleet.open().await;
    let forged = forgery(&fleet, "lie").await;
    let with = |number: u64, change: &dyn Fn(&mut serde_json::Value)| {
        let mut head = forged.head.clone();
        (head["caller"], head["key"]) = (json!("ann"), json!(Forgery::key(key)));
        change(&mut head);
        Forgery {
            head,
            number,
            ..forged.clone()
        }
    };
    let bobs = Forgery::key("a-key-of-bob-and-of-nobody");
    for (lie, ending) in [
        (with(1, &|it| it["caller"] = json!("bob")), "Refused"),
        (
            with(2, &|it| {
                (it["caller"], it["key"]) = (json!("bob"), json!(bobs))
            }),
            "Refused",
        ),
        (with(3, &|it| it["key"] = json!(bobs)), "Refused"),
        (with(4, &|it| it["key"] = json!(null)), "Refused"),
        (
            with(5, &|it| {
                (it["caller"], it["key"]) = (json!(null), json!(null))
            }),
            "Refused",
        ),
        (with(6, &|it| it["server"] = json!("other")), "Refused"),
        (
            with(7, &|it| it["session"] = json!("A".repeat(32))),
            "NotMine",
        ),
        (with(8, &|it| it["session"] = json!("x")), "Refused"),
        (with(9, &|it| it["generation"] = json!(2)), "Unsure"),
        (with(10, &|it| it["generation"] = json!(0)), "NotMine"),
        (with(11, &|it| *it = json!("nonsense")), "Refused"),
    ] {
        let records = answered(&fleet, &lie).await;
        assert!(
            records.contains(ending) && !records.contains("Accepted"),
            "{lie:?}: {records}"
        );
    }
    assert_eq!(fleet.tally.count("bump lie"), 0);
    // To end a session takes more than to say so.
    let ending = with(12, &|it| it["operation"] = json!("end"));
    assert!(answered(&fleet, &ending).await.contains("Done"));
    assert_eq!(fleet.pid(0).await, fleet.tally.pids()[0]);
    // The control: the truth.
    assert!(
        answered(&fleet, &with(13, &|_| {}))
            .await
            .contains("Accepted")
    );
    assert_eq!(fleet.tally.count("bump lie"), 1);
}

/// A relay that keeps what goes to the owner.
async fn recorder(owner: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let kept = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let keeping = Arc::clone(&kept);
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.clone().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let kept = Arc::clone(&keeping);
            tasks.spawn(relay(client, owner, kept));
        }
    });
    (address, kept)
}

#[expect(clippy::disallowed_methods, reason = "this is the way to the owner")]
async fn relay(client: TcpStream, owner: std::net::SocketAddr, kept: Arc<Mutex<Vec<Vec<u8>>>>) {
    let Ok(owner) = TcpStream::connect(owner).await else {
        return;
    };
    let at = {
        let mut kept = kept.lock();
        kept.push(Vec::new());
        kept.len() - 1
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_owner, mut to_owner) = owner.into_split();
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            kept.lock()[at].extend_from_slice(&buffer[..count]);
            if to_owner.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
        drop(to_owner.shutdown().await);
    };
    let back = async {
        drop(tokio::io::copy(&mut from_owner, &mut to_client).await);
    };
    tokio::join!(there, back);
}

/// What a gateway really sent, once more and on another connection.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the attacker's way")]
async fn recorded_bytes_run_nothing_again() {
    let owner = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (address, kept) = recorder(owner).await;
    let started = Fleet::start_with(2, |number, config| {
        if number == 0 {
            let peers = config.peers.as_mut().unwrap();
            (peers.listen, peers.advertise) = (owner, Some(address.to_string()));
        }
    });
    let Some(fleet) = started.await else { return };
    let fleet = fleet.open().await;
    let answer = fleet
        .at(1)
        .call(1, "bump", &json!({"key": "recorded"}))
        .await;
    assert_eq!(answer.status, 200);
    let kept = kept.lock().clone();
    assert!(!kept.is_empty());
    for bytes in kept {
        assert!(
            !bytes.windows(8).any(|it| it == b"recorded"),
            "it is sealed"
        );
        let mut connection = TcpStream::connect(owner).await.unwrap();
        connection.write_all(&bytes).await.unwrap();
        let mut response = vec![0; 64];
        let count = connection.read(&mut response).await.unwrap();
        let response = String::from_utf8_lossy(&response[..count]).into_owned();
        assert!(response.starts_with("HTTP/1.1 409"), "{response}");
    }
    assert_eq!(fleet.tally.count("bump recorded"), 1);
}

/// Whoever has not greeted is refused before much of a body is held.
#[tokio::test]
async fn a_stranger_has_a_short_body() {
    let Some(fleet) = Fleet::start(1).await else {
        return;
    };
    let peers = fleet.gateways[0].peers().unwrap().tcp().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a stranger's own")]
    let mut stranger = TcpStream::connect(peers).await.unwrap();
    let head = "POST /forward HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    stranger.write_all(head.as_bytes()).await.unwrap();
    stranger.write_all(&[b'x'; 64 << 10]).await.unwrap();
    let mut answer = [0; 12];
    stranger.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}
