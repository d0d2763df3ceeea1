//! Listening to the other gateways on the store, and saying that this one is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bowline_store::{ListenerEvent, Presence, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Target;
use crate::exchange::announcements;
use crate::hub::Hub;
use crate::owners;
use crate::owners::look::{EVERY, HOLDS, Look, Visible};
use crate::registry::presence::hex;
use crate::session::tool_hints::SharedToolHints;
use crate::session_store::SessionStore;
use crate::session_store::announcement::Announcement;

/// How often a store that does not answer is retried.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Listens and looks around for as long as the gateway runs.
pub(super) fn watch(hub: &Arc<Hub>) {
    let Some(session_store) = hub.registry.table.session_store() else {
        return;
    };
    if session_store.is_shared() {
        let missed = Arc::new(Notify::new());
        let hearing = hear(
            Arc::clone(hub),
            Arc::clone(session_store),
            Arc::clone(&missed),
        );
        hub.tracker.spawn(hub.drain.until_closed(hearing));
        let making_up = make_up_for(missed, Arc::clone(hub));
        hub.tracker.spawn(hub.drain.until_closed(making_up));
    }
    // Present for as long as anything may be in progress here: the others would recover its session.
    let looking = look_around(Arc::clone(hub), Arc::clone(session_store));
    let tracker = hub.peer_drain.connections();
    tracker.spawn(hub.peer_drain.until_closed(looking));
}

async fn hear(hub: Arc<Hub>, session_store: Arc<SessionStore>, missed: Arc<Notify>) {
    let mut listener = session_store.store.listen();
    loop {
        match listener.next().await {
            ListenerEvent::Broken => session_store.hears_no_more(),
            ListenerEvent::Whole => {
                session_store.hears_again();
                missed.notify_one();
            }
            ListenerEvent::Announcement(announced) => {
                if let Some(news) = Announcement::heard(&session_store, &announced.body)
                    && !hub.unions.hear(&news).await
                {
                    announcements::hear(&hub.registry.table, &session_store, news).await;
                }
            }
        }
    }
}

/// Looks in the store for what nobody looks at unasked, whenever announcements may have been missed. Beside
/// the hearing, because that goes on.
async fn make_up_for(missed: Arc<Notify>, hub: Arc<Hub>) {
    loop {
        missed.notified().await;
        while let Err(error) = hub.registry.table.end_overtaken().await {
            tracing::debug!(%error, "cannot look up overtaken streams");
            tokio::time::sleep(EVERY).await;
        }
    }
}

async fn look_around(hub: Arc<Hub>, session_store: Arc<SessionStore>) {
    let (mut knows_policy, mut visible) = (false, Visible::default());
    loop {
        let looked = look(&hub, &session_store, &mut visible).await;
        if looked.is_ok() {
            knows_policy = knows_policy || tell_eviction(&session_store).await;
            share_hints(&hub, &session_store).await;
        }
        let pause = if looked.is_ok() { EVERY } else { ASK_EVERY };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = hub.channels.owners.wanted(), if looked.is_ok() => {}
        }
    }
}

/// Says that this gateway is there, and looks who else is. An error: the store is away, or takes nothing.
async fn look(
    hub: &Hub,
    session_store: &SessionStore,
    visible: &mut Visible,
) -> Result<(), StoreError> {
    let me = Presence {
        id: session_store.me.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seal_keys: session_store.seal_keys(),
        servers: fingerprint(hub),
        peer: address(hub, session_store),
    };
    session_store.ping().await?;
    // One that takes nothing may be read all the same.
    let appeared = session_store.appear(&me, HOLDS).await;
    let began = Instant::now();
    let listed = session_store.gateways().await?;
    let look = Look::new(&me.id, began, &listed);
    visible.note(&look);
    let not_gone = look.not_gone(visible);
    let not_gone = not_gone.map(|gateways| with_addresses(&gateways, session_store));
    if let (Some(peers), Some(not_gone)) = (&hub.peers, &not_gone) {
        peers.keep(|id| not_gone.contains_key(id));
    }
    hub.channels.owners.saw(began, not_gone);
    hub.other_gateways
        .see(&me, look.present(), look.unreadable());
    keep_owned(hub, look.holds_until()).await;
    for gone in look.gone(visible).filter(|_| appeared.is_ok()) {
        session_store.forget(gone).await;
    }
    session_store.count_sessions().await?;
    appeared
}

/// What the address of a gateway is sealed for: it opens for no other gateway.
fn place(id: &str) -> Vec<u8> {
    [b"peer address of ", id.as_bytes()].concat()
}

/// Where other gateways reach this one, sealed: whoever can write to the store cannot lead them elsewhere.
fn address(hub: &Hub, session_store: &SessionStore) -> Option<String> {
    let address = hub.peers.as_ref()?.address.as_ref()?;
    let sealed = session_store
        .keys
        .seal(&place(&session_store.me), address.as_bytes());
    sealed.ok().map(|sealed| BASE64_STANDARD.encode(sealed))
}

/// Gateways, and where each can be reached.
fn with_addresses(gateways: &[&Presence], session_store: &SessionStore) -> owners::PresentGateways {
    let gateways = gateways.iter().map(|gateway| {
        let sealed = gateway
            .peer
            .as_ref()
            .and_then(|it| BASE64_STANDARD.decode(it).ok());
        let opened = sealed.and_then(|it| session_store.keys.open(&place(&gateway.id), &it).ok());
        let address = opened.and_then(|it| String::from_utf8(it).ok());
        (gateway.id.as_str().into(), address.map(Into::into))
    });
    gateways.collect()
}

/// This gateway may use what it owns until then. If it might not for a while, the others may have taken it over: it
/// reads the records first, and what it lost is ended.
async fn keep_owned(hub: &Hub, until: Instant) {
    let owners = &hub.channels.owners;
    if !owners.holds() && Instant::now() < until {
        let table = &hub.registry.table;
        for session in table.all().into_iter().filter(|one| one.leg().is_live()) {
            match session.refresh().await {
                Ok(true) => {}
                Ok(false) => drop(table.end(&session.id)),
                Err(error) => {
                    tracing::debug!(%error, "whether a process is still the session's is not known");
                    return;
                }
            }
        }
        // Within the grace period a session goes on without its record having been read.
        if !table
            .session_store()
            .is_some_and(|store| store.is_reachable())
        {
            return;
        }
    }
    owners.hold_until(until);
}

/// Writes what was learnt of tools while the store could not be written to: what a listing took back must not
/// come back by another gateway, or after a restart.
async fn share_hints(hub: &Hub, session_store: &Arc<SessionStore>) {
    for upstream in hub.routes.all().values() {
        for audience in upstream.tool_hints.unstored() {
            if let Some(hints) = SharedToolHints::new(session_store, upstream, audience)
                && let Err(error) = hints.share().await
            {
                tracing::debug!(%error, "tool hints not written");
            }
        }
    }
}

/// Warns of a store that may evict sessions. `false`: it could not be asked.
async fn tell_eviction(session_store: &SessionStore) -> bool {
    let policy = session_store.store.eviction().await;
    if let Ok(Some(policy)) = &policy {
        tracing::warn!(
            policy,
            "Redis may evict sessions: set `maxmemory-policy noeviction`"
        );
    }
    policy.is_ok()
}

/// What must be the same on all gateways: which servers there are, and where.
fn fingerprint(hub: &Hub) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let servers: BTreeMap<_, _> = hub
        .routes
        .all()
        .iter()
        .map(|(name, upstream)| (name.clone(), Arc::clone(upstream)))
        .collect();
    for (name, upstream) in servers {
        context.update(name.as_ref().as_bytes());
        for url in upstream.config().target.urls() {
            context.update(b"\n");
            context.update(url.to_string().as_bytes());
        }
        if let Target::Command(command) = &upstream.config().target {
            context.update(command.identity().as_bytes());
        }
        context.update(b"\n\n");
    }
    hex(&context.finish().as_ref()[..8])
}
