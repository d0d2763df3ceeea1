use bowline_wire::id::{SessionId, UpstreamSessionId};
use bowline_wire::message::Message;

use super::*;
use crate::caller::Caller;
use crate::leg::capabilities::{Capabilities, MissingLists};
use crate::leg::marks::Seal;
use crate::leg::{Generation, Leg, Life};
use crate::session::ClientState;
use crate::upstream::{Conversation, Credentials, Pin};
use bowline_egress::Jar;
use bowline_wire::version::Agreed;

/// What servers are pinged after by default.
const TIME: Duration = Duration::from_secs(240);

/// A session at this server, which has issued an id.
fn session_at(server: &Leg, number: u16) -> Arc<Session> {
    session_of(&server.upstream, &server.endpoint, number)
}

/// The same at another endpoint of the server.
fn session_of(upstream: &Arc<Upstream>, endpoint: &Pin, number: u16) -> Arc<Session> {
    let id = UpstreamSessionId::parse(b"u1").unwrap();
    let life = Life {
        generation: Generation::FIRST,
        conversation: Conversation::http(Some(id), Jar::default()),
        version: Agreed::on("2025-11-25").unwrap(),
        credentials: Credentials::Nobody,
        missing_lists: MissingLists::default(),
    };
    let leg = Leg::new(Arc::clone(upstream), endpoint.again(), None, life);
    let mut bytes = [0; SessionId::BYTES];
    bytes[2..4].copy_from_slice(&number.to_be_bytes());
    Arc::new(Session::new(
        &SessionId::from_random(bytes),
        Caller::Local,
        Seal::generate().unwrap(),
        leg,
        ClientState::new(&[], None, Capabilities::default()),
    ))
}

fn session() -> Arc<Session> {
    session_at(&Leg::idle(), 0)
}

/// The client sends a request of this method.
fn asks(session: &Arc<Session>, method: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let in_use = session.begin_use();
    session.note_request(&Message::parse(text.into()).unwrap());
    drop(in_use);
}

/// A session whose client has come back.
fn used(session: Arc<Session>) -> Arc<Session> {
    asks(&session, "tools/call");
    asks(&session, "tools/call");
    session
}

async fn after(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test]
async fn a_client_that_comes_back_seems_to_keep_its_session() {
    let session = session();
    assert!(!is_kept(&session));
    for method in [
        "tools/call",
        "tools/list",
        "prompts/list",
        "resources/templates/list",
    ] {
        asks(&session, method);
        assert!(!is_kept(&session), "{method}");
    }
    asks(&session, "resources/read");
    assert!(is_kept(&session));
}

#[tokio::test]
async fn a_server_without_session_ids_ends_none() {
    let id = SessionId::from_random([7; SessionId::BYTES]);
    let client_state = ClientState::new(&[], None, Capabilities::default());
    let seal = Seal::generate().unwrap();
    let session = Session::new(&id, Caller::Local, seal, Leg::idle(), client_state);
    assert!(!is_kept(&used(Arc::new(session))));
}

#[tokio::test]
async fn what_is_lost_or_leaves_is_left_alone() {
    let lost = used(session());
    lost.leg().lose();
    assert!(!is_kept(&lost));
    let retired = used(session());
    retired.upstream.retire();
    assert!(!is_kept(&retired));
    let drained = used(session());
    drained
        .upstream
        .endpoints
        .set(Vec::<(Box<str>, _)>::new(), |never| never);
    assert!(!is_kept(&drained));
    let off = used(session());
    let server = off.upstream.config();
    off.upstream.reconfigure(crate::config::Server {
        keep_alive: None,
        ..(*server).clone()
    });
    assert!(!is_kept(&off));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_due_before_the_time_is_over() {
    let session = used(session());
    after(TIME * 3 / 4 - Duration::from_secs(1)).await;
    assert!(!is_due(&session));
    after(TIME / 8 + Duration::from_secs(1)).await;
    assert!(is_due(&session));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_puts_it_off_and_a_ping_is_no_use() {
    let session = used(session());
    after(TIME).await;
    session.note_contact();
    assert!(!is_due(&session), "it was pinged");
    assert_eq!(session.idle_for(), TIME);
    after(TIME).await;
    assert!(is_due(&session));
    let in_use = session.begin_use();
    asks(&session, "tools/list");
    assert!(!is_due(&session), "a list was asked for");
    after(TIME).await;
    assert!(is_due(&session), "a call may take longer");
    drop(in_use);
    assert!(!is_due(&session), "it has just ended");
}

#[tokio::test(start_paused = true)]
async fn those_that_were_used_last_are_pinged_server_by_server() {
    let (one, other) = (Leg::idle(), Leg::idle());
    let few = used(session_at(&other, 0));
    let mut sessions = vec![Arc::clone(&few)];
    for number in 0..MAX_KEPT as u16 + 2 {
        sessions.push(used(session_at(&one, number)));
        after(Duration::from_millis(200)).await;
    }
    after(TIME).await;
    let mut counts = Vec::new();
    for chosen in due(sessions.clone()) {
        let is_chosen = |one| chosen.iter().any(|it| Arc::ptr_eq(it, one));
        assert!(!is_chosen(&sessions[1]) && !is_chosen(&sessions[2]));
        counts.push(chosen.len());
    }
    counts.sort_unstable();
    assert_eq!(counts, [1, MAX_KEPT]);
}

#[tokio::test(start_paused = true)]
async fn those_of_one_server_are_pinged_endpoint_by_endpoint() {
    let (server, replica) = (Leg::idle(), Leg::idle());
    let mut sessions = Vec::new();
    for number in 0..3 {
        sessions.push(used(session_at(&server, number)));
    }
    for number in 3..5 {
        let at_replica = session_of(&server.upstream, &replica.endpoint, number);
        sessions.push(used(at_replica));
    }
    after(TIME).await;
    let chosen = due(sessions);
    let mut counts: Vec<_> = chosen.iter().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
    for sessions in &chosen {
        let first = &sessions[0].leg().endpoint;
        let is_there = |one: &Arc<Session>| std::ptr::eq(&**first, &*one.leg().endpoint);
        assert!(sessions.iter().all(is_there));
    }
}

#[tokio::test]
async fn an_endpoint_that_is_being_pinged_is_left_alone_and_no_other() {
    let (server, replica) = (Leg::idle(), Leg::idle());
    server.endpoint.being_pinged.store(true, Ordering::Release);
    for endpoint in [&server.endpoint, &replica.endpoint] {
        let session = used(session_of(&server.upstream, endpoint, 0));
        begin_round(vec![session], Drain::new(TIME));
    }
    let rounds = server.upstream.tracker().len();
    assert_eq!(rounds, 1);
    assert!(replica.endpoint.being_pinged.load(Ordering::Acquire));
}
