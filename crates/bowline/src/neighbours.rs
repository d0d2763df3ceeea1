//! The other gateways on the same store: hearing what they announce, and noticing one that has
//! other keys or other servers before its sessions are met.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{digest, rand};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::gateway::Shared;
use crate::session::{Keeper, News};
use crate::store::sealed::NoRandomness;
use crate::store::{Heard, Presence, Present, StoreError};

/// How often a gateway says that it is there, and for how long that holds.
const EVERY: Duration = Duration::from_secs(3);
const HOLDS: Duration = Duration::from_secs(12);

/// How often a store that does not answer is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The other gateways, as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// In what each differs.
    others: BTreeMap<String, Vec<&'static str>>,
    /// How many say something that cannot be read.
    unreadable: usize,
}

/// A random name for this gateway.
pub(crate) fn name() -> Result<Box<str>, NoRandomness> {
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| NoRandomness)?;
    Ok(hex(&random).into())
}

/// Listens and looks around for as long as the gateway runs.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let Some(keeper) = shared.table.keeper() else {
        return;
    };
    if keeper.is_shared() {
        let missed = Arc::new(Notify::new());
        let hearing = hear(Arc::clone(shared), Arc::clone(keeper), Arc::clone(&missed));
        shared.tracker.spawn(shared.drain.until_closed(hearing));
        let making_up = make_up_for(missed, Arc::clone(shared));
        shared.tracker.spawn(shared.drain.until_closed(making_up));
    }
    let looking = look_around(Arc::clone(shared), Arc::clone(keeper));
    shared.tracker.spawn(shared.drain.until_closed(looking));
}

async fn hear(shared: Arc<Shared>, keeper: Arc<Keeper>, missed: Arc<Notify>) {
    let mut listener = keeper.store.listen();
    loop {
        match listener.next().await {
            Heard::Broken => keeper.hears_no_more(),
            Heard::Whole => {
                keeper.hears_again();
                missed.notify_one();
            }
            Heard::Announcement(announced) => {
                if let Some(news) = News::heard(&keeper, &announced.body) {
                    shared.table.hear(&keeper, news).await;
                }
            }
        }
    }
}

/// Looks in the store for what nobody looks at unasked, whenever announcements may have been missed. Beside
/// the hearing, because that goes on.
async fn make_up_for(missed: Arc<Notify>, shared: Arc<Shared>) {
    loop {
        missed.notified().await;
        while let Err(error) = shared.table.end_overtaken().await {
            tracing::debug!(%error, "whether streams were overtaken is not known");
            tokio::time::sleep(EVERY).await;
        }
    }
}

async fn look_around(shared: Arc<Shared>, keeper: Arc<Keeper>) {
    let mut knows_policy = false;
    loop {
        let me = Presence {
            id: keeper.me.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seal_keys: keeper.seal_keys(),
            servers: fingerprint(&shared),
        };
        let looked = async {
            keeper.ping().await?;
            // One that takes nothing may be read all the same.
            let appeared = keeper.appear(&me, HOLDS).await;
            shared.neighbours.see(&me, keeper.gateways().await?);
            keeper.count_sessions().await?;
            if !knows_policy {
                knows_policy = tell_eviction(&keeper).await;
            }
            appeared
        };
        let looked: Result<(), StoreError> = looked.await;
        let pause = if looked.is_ok() { EVERY } else { ASK_EVERY };
        tokio::time::sleep(pause).await;
    }
}

/// Warns of a store that may throw sessions away. `false`: it could not be asked.
async fn tell_eviction(keeper: &Keeper) -> bool {
    let policy = keeper.store.eviction().await;
    if let Ok(Some(policy)) = &policy {
        tracing::warn!(
            policy,
            "Redis may throw sessions away to make room: set `maxmemory-policy noeviction`"
        );
    }
    policy.is_ok()
}

/// What must be the same on all gateways: which servers there are, and where.
fn fingerprint(shared: &Shared) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let servers: BTreeMap<_, _> = shared
        .routes
        .all()
        .iter()
        .map(|(name, upstream)| (name.clone(), Arc::clone(upstream)))
        .collect();
    for (name, upstream) in servers {
        context.update(name.as_ref().as_bytes());
        for url in upstream.server().way.urls() {
            context.update(b"\n");
            context.update(url.to_string().as_bytes());
        }
        context.update(b"\n\n");
    }
    hex(&context.finish().as_ref()[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl Neighbours ===

impl Neighbours {
    fn see(&self, me: &Presence, found: Present) {
        let others = found.gateways.into_iter().filter(|other| other.id != me.id);
        let seen: BTreeMap<_, _> = others
            .map(|other| {
                let opens = me.opens_what_is_sealed_by(&other) && other.opens_what_is_sealed_by(me);
                let differ = [
                    ("seal keys", !opens),
                    ("servers", other.servers != me.servers),
                ];
                let differ = differ.into_iter().filter(|(_, differs)| *differs);
                (other.id, differ.map(|(what, _)| what).collect::<Vec<_>>())
            })
            .collect();
        let mut known = self.0.lock();
        for (gateway, differ) in &seen {
            if !differ.is_empty() && known.others.get(gateway) != Some(differ) {
                tracing::warn!(
                    gateway,
                    "another gateway on this store has other {}: sessions of one fail on the other",
                    differ.join(" and ")
                );
            }
        }
        if found.unreadable > known.unreadable {
            tracing::warn!(
                count = found.unreadable,
                "what other gateways on this store say of themselves cannot be read"
            );
        }
        *known = Known {
            others: seen,
            unreadable: found.unreadable,
        };
    }

    /// What an operator should know.
    pub(crate) fn told(&self) -> Value {
        let known = self.0.lock();
        let told = known
            .others
            .iter()
            .map(|(gateway, differ)| json!({"gateway": gateway, "differs_in": differ}));
        told.collect()
    }

    /// How many there are of which nothing else can be said.
    pub(crate) fn unreadable(&self) -> usize {
        self.0.lock().unreadable
    }
}
