//! Sessions that listen on their GET stream all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::forge;
use super::rover::{Failure, Rover};
use crate::history::{Call, Kind, Outcome, Recorder};
use crate::server::{Server, is_in_union};
use crate::world::World;

/// One session in so many listens, and one client of all servers in so many.
const ONE_IN: usize = 4;
const ONE_UNION_IN: usize = 2;
/// How long a restored stream may take to be heard, and how often its server speaks. That is far more than it needs, so
/// that a busy machine does not count as a lost stream.
const PATIENCE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(200);
/// How long a client waits before it opens an ended stream again.
const AGAIN: Duration = Duration::from_millis(100);

/// The sessions that listen. They stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Listeners {
    sessions: BTreeMap<usize, Rover>,
    /// Who has heard from its server since all is well.
    heard: Arc<Mutex<BTreeSet<usize>>>,
    _tasks: JoinSet<()>,
}

/// What listening clients heard of changed tools.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The latest change that was announced, and the latest that somebody heard of.
    announced: AtomicU64,
    heard: watch::Sender<u64>,
    /// Sessions that have to look at the tools again.
    stale: Mutex<BTreeSet<usize>>,
}

/// What a session's client calls itself, by which its server knows whom it speaks to.
pub(super) fn name(session: usize) -> String {
    format!("chaos {session}")
}

impl Heard {
    /// Another change; its number.
    pub(crate) fn announce(&self) -> u64 {
        self.announced.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until somebody heard of this change.
    pub(crate) async fn until(&self, number: u64) {
        let mut heard = self.heard.subscribe();
        // The sender is at hand as long as this is.
        drop(heard.wait_for(|heard| *heard >= number).await);
    }

    /// Whether this session has to look at the tools again; it does from now on.
    pub(super) fn take_stale(&self, session: usize) -> bool {
        self.stale.lock().remove(&session)
    }

    /// A session heard this.
    fn note(&self, session: usize, message: &Value) {
        if message["method"] == "notifications/tools/list_changed" {
            self.stale.lock().insert(session);
        }
        if let Some(number) = message["params"]["_meta"]["flip"].as_u64() {
            self.heard.send_modify(|heard| *heard = number.max(*heard));
        }
    }
}

impl Listeners {
    /// Has some of these sessions listen.
    pub(crate) fn start(
        clients: &[Rover],
        unions: &[(usize, Rover)],
        recorder: &Arc<Recorder>,
        changes: &Arc<Heard>,
    ) -> Self {
        let heard = Arc::<Mutex<BTreeSet<usize>>>::default();
        let mut tasks = JoinSet::new();
        let mut sessions = BTreeMap::new();
        let clients = clients.iter().enumerate().step_by(ONE_IN);
        let unions = unions.iter().step_by(ONE_UNION_IN);
        let unions = unions.map(|(number, client)| (*number, client));
        for (session, client) in clients.chain(unions) {
            sessions.insert(session, client.twin());
            let (heard, recorder) = (Arc::clone(&heard), Arc::clone(recorder));
            let changes = Arc::clone(changes);
            tasks.spawn(listen(session, client.twin(), heard, changes, recorder));
        }
        Self {
            sessions,
            heard,
            _tasks: tasks,
        }
    }

    /// Has every server speak to every session; the listening ones that do not hear it. Each is used meanwhile: a server
    /// that forgot a session may leave its stream open, and nothing but a use of the session tells.
    pub(crate) async fn deaf(&self, world: &World) -> Vec<usize> {
        self.heard.lock().clear();
        let until = Instant::now() + PATIENCE;
        let ping = json!({"jsonrpc": "2.0", "id": "afterwards", "method": "ping"});
        let mut pings = JoinSet::new();
        for client in self.sessions.values() {
            let (mut client, ping) = (client.twin(), ping.clone());
            pings.spawn(async move {
                while client.send(&ping).await.is_err() {
                    sleep(EVERY).await;
                }
            });
        }
        loop {
            let heard = self.heard.lock().clone();
            let all = self.sessions.keys().copied();
            let deaf: Vec<_> = all.filter(|one| !heard.contains(one)).collect();
            if deaf.is_empty() || Instant::now() > until {
                return deaf;
            }
            speak(world);
            sleep(EVERY).await;
        }
    }
}

/// Every replica tells every session its own name.
pub(crate) fn speak(world: &World) {
    for replica in &world.replicas {
        replica.server.emit_to_each(|session| {
            let name = &session.parameters["clientInfo"]["name"];
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": name}})
        });
    }
}

/// Listens for ever, on one stream after the other.
async fn listen(
    session: usize,
    mut client: Rover,
    heard: Arc<Mutex<BTreeSet<usize>>>,
    changes: Arc<Heard>,
    recorder: Arc<Recorder>,
) {
    let record = |gateway, outcome| {
        let now = recorder.now();
        recorder.call(Call {
            session,
            kind: Kind::Listen,
            key: format!("s{session}.get"),
            began: now,
            ended: now,
            gateway,
            outcome,
        });
    };
    loop {
        let gateway = client.upcoming();
        let ended = client.listen(|message| {
            changes.note(session, &message);
            if is_spoken_to(session, &message) {
                heard.lock().insert(session);
            } else if !is_own(session, &message) && !is_progress_of(session, &message) {
                record(gateway, Outcome::Wrong(message.to_string()));
            }
        });
        match ended.await {
            // A clean end is the server's choice.
            Ok(200) => record(gateway, Outcome::Answered),
            Ok(404) => {
                record(gateway, Outcome::Lost);
                // Its session stays lost, and the lanes do not share their new ones.
                return;
            }
            Ok(status) => record(gateway, Outcome::Refused(status, None)),
            Err(Failure::Broken(error)) => record(gateway, Outcome::Silent(error)),
            Err(Failure::Orphaned) => record(gateway, Outcome::Orphaned),
            Err(Failure::NotThere) => {}
        }
        sleep(AGAIN).await;
    }
}

/// Whether a session may be told this: nothing at all, its own name, that a list has changed, or what was forged and means
/// nothing.
pub(super) fn is_own(session: usize, message: &Value) -> bool {
    let method = message["method"].as_str().unwrap_or_default();
    message.is_null()
        || is_spoken_to(session, message)
        || method.ends_with("/list_changed")
        || forge::is_as_written(message)
}

/// Whether this is the progress of a call of a union's client: where one channel carries all of a server's messages, it
/// comes on the GET stream once nobody waits for the call any more. A call that lacks it fails by itself.
fn is_progress_of(client: usize, message: &Value) -> bool {
    let token = message["params"]["progressToken"].as_str();
    let is_its = |session: usize| token.is_some_and(|it| it.starts_with(&format!("s{session}/")));
    let mut servers = Server::ALL.into_iter();
    is_in_union(client) && servers.any(|server| is_its(server.member_of(client)))
}

/// Whether a session's server speaks to it.
fn is_spoken_to(session: usize, message: &Value) -> bool {
    message["params"]["data"] == name(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_name_is_a_sessions_to_hear() {
        let told =
            |name: &str| json!({"method": "notifications/message", "params": {"data": name}});
        assert!(is_own(3, &told("chaos 3")));
        assert!(!is_own(3, &told("chaos 4")));
        assert!(is_own(
            3,
            &json!({"method": "notifications/tools/list_changed"})
        ));
        assert!(!is_own(3, &json!({"id": 1, "result": {}})));
        let progress = |token: &str| json!({"params": {"progressToken": token}});
        assert!(is_progress_of(2500, &progress("s12500/0-7, again 1")));
        assert!(!is_progress_of(2500, &progress("s12501/0-7")));
        assert!(!is_progress_of(3, &progress("s3/0-7")));
        assert!(is_spoken_to(3, &told("chaos 3")) && !is_spoken_to(3, &Value::Null));
    }
}
