//! Sign-ins: begun where a server wants one, one at a time per caller and server, and finished by
//! whichever gateway the answer reaches.
//!
//! A flow belongs to a caller and a server; a wait belongs to one request. A wait that ends leaves
//! its flow alone: somebody may be typing a password. A flow ends by success, by a no, by its
//! deadline, and then only once: whoever takes it out of the store exchanges its code. Nothing is
//! locked while a person is waited for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::{Account, Wanted, Whose};
use super::authorities::Authorities;
use super::authority::{Authority, AuthorityError, check_issuer};
use super::flow::{End, Flow, FlowId, Signing};
use super::grant::{ClientIdentity, Discovered, Tokens};
use super::grants::{GrantError, Grants};
use super::pending::{Pending, PendingError};
use super::secret::Secret;
use super::vault::{Vault, VaultError};
use crate::clock;
use crate::config::{self, ServerOAuth};
use crate::telemetry::SessionHash;

/// How long a caller who said no is not asked again.
const DECLINE_REMEMBERED: i64 = 10 * 60;
/// How often it is looked whether another gateway has finished a flow.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often in a row a server may want more scopes, and after which time it may again.
const MAX_STEPS: u32 = 3;
const STEPS_FORGOTTEN: Duration = Duration::from_secs(10 * 60);

/// The sign-ins of one gateway.
#[derive(Debug)]
pub(crate) struct SignIns {
    pub(super) grants: Arc<Grants>,
    vault: Arc<Vault>,
    pending: Pending,
    settings: config::OAuth,
    /// Where people reach this gateway's pages, without a slash at the end.
    public_url: Box<str>,
    pub(crate) authorities: Arc<Authorities>,
    /// One beginning at a time per caller and server.
    beginning: Mutex<HashMap<Whose, Arc<tokio::sync::Mutex<()>>>>,
    steps: Mutex<HashMap<Whose, (u32, Instant)>>,
    /// Who was asked for which flow, until that is over.
    asked: Mutex<Vec<(SessionHash, FlowId, i64)>>,
    ended: Notify,
}

/// What came back from an authorization server, by whichever way.
#[derive(Debug)]
pub(crate) enum Delivery {
    Code {
        code: Secret,
        iss: Option<String>,
    },
    /// An error's code. Its description is not used: anybody could have written it.
    Error {
        error: String,
        iss: Option<String>,
    },
}

/// By which way an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Via<'a> {
    /// This gateway's own page, with what the browser has of the start page.
    Browser(Option<&'a str>),
    /// Whoever was trusted to pass it on, and who may not know of `iss`.
    Courier,
    /// The browser of whoever began the flow, which came back to a listener of that flow's own.
    Loopback,
}

/// Why an answer was not taken. The flow, if there is one, goes on.
#[derive(Debug, Error)]
pub(crate) enum NotDelivered {
    /// No such state, or not any more; or not for this browser.
    #[error("no sign-in waits for this answer")]
    Unknown,
    #[error("the answer is not from the authorization server that was asked")]
    Issuer,
    #[error(transparent)]
    Pending(#[from] PendingError),
    #[error("the sign-in was given up")]
    GivenUp,
}

/// Why there is no sign-in to wait for.
#[derive(Debug, Error)]
pub(crate) enum SignInError {
    #[error("the sign-in was declined; call the tool `sign_in` to try again")]
    Declined,
    #[error("the server wants more scopes again and again")]
    TooManySteps,
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Pending(#[from] PendingError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Grant(#[from] GrantError),
}

// === impl SignIns ===

impl SignIns {
    pub(crate) fn new(
        (grants, vault): (Arc<Grants>, Arc<Vault>),
        pending: Pending,
        settings: config::OAuth,
        public_url: &str,
        authorities: Arc<Authorities>,
    ) -> Arc<Self> {
        Arc::new(Self {
            grants,
            vault,
            pending,
            settings,
            public_url: public_url.trim_end_matches('/').into(),
            authorities,
            beginning: Mutex::default(),
            steps: Mutex::default(),
            asked: Mutex::default(),
            ended: Notify::new(),
        })
    }

    pub(crate) fn settings(&self) -> &config::OAuth {
        &self.settings
    }

    /// Takes note of what other processes did.
    pub(crate) async fn notice(&self) {
        self.grants.notice().await;
    }

    /// Whether people reach this gateway's pages by https.
    pub(crate) fn is_public_https(&self) -> bool {
        self.public_url.starts_with("https:")
    }

    /// Whether nobody in this session was asked for this flow yet, by this gateway.
    pub(crate) fn asks_first(&self, session: SessionHash, flow: &Flow) -> bool {
        let now = clock::unix_seconds();
        let mut asked = self.asked.lock();
        asked.retain(|(_, _, ends)| now < *ends);
        let (id, ends) = (flow.id(), flow.ends);
        let is_first = !asked
            .iter()
            .any(|(who, what, _)| (*who, what) == (session, &id));
        if is_first {
            asked.push((session, id, ends));
        }
        is_first
    }

    /// Where a person goes to sign in.
    pub(crate) fn link(&self, flow: &Flow) -> String {
        if flow.client.redirect_uri == self.callback_url() {
            return format!(
                "{}/oauth/start?flow={}",
                self.public_url,
                flow.id().as_str()
            );
        }
        flow.begun.authorize_url.clone()
    }

    fn callback_url(&self) -> String {
        format!("{}/oauth/callback", self.public_url)
    }

    /// The flow in which a caller can sign in: the one that is under way, or a new one.
    pub(crate) async fn begin(
        &self,
        account: &Account,
        server: &config::Server,
        wanted: &Wanted,
    ) -> Result<Flow, SignInError> {
        let Some(oauth) = &server.oauth else {
            return Err(AuthorityError::NoSupport.into());
        };
        let key = account.key();
        let one = {
            let mut beginning = self.beginning.lock();
            beginning.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(beginning.entry(key.clone()).or_default())
        };
        let _one = one.lock().await;
        let now = clock::unix_seconds();
        let signing = self.pending.signing(&key.0, &key.1).await?;
        if now < signing.declined_until {
            return Err(SignInError::Declined);
        }
        if let Some(flow) = self.under_way(&signing, now).await?
            && wanted.is_covered_by(&flow.begun.scopes)
        {
            return Ok(flow);
        }
        let mut known = Vec::new();
        if wanted.is_step_up {
            self.step(&key)?;
            known = self.granted_scopes(&key).await?;
        }
        let authority = self.authorities.of(&key.1)?;
        let found = authority.discover(wanted.challenge.as_ref()).await?;
        let redirect_uri = match &oauth.redirect_uri {
            Some(configured) => configured.as_str().to_owned(),
            None => self.callback_url(),
        };
        let scopes = scopes(oauth, &found, wanted, known);
        let client = self
            .identity(oauth, &authority, &found, &redirect_uri, &scopes)
            .await?;
        let begun = authority.begin(&found, &client, &scopes).await?;
        let flow = Flow {
            caller: key.0.to_string(),
            server: account.server.to_string(),
            server_url: key.1.to_string(),
            found,
            client,
            begun,
            browser: None,
            ends: now + seconds(self.settings.deadline),
        };
        self.pending.add(&flow).await?;
        let (id, ends) = (flow.id(), flow.ends);
        let replaced = signing.flow;
        let signing = self
            .pending
            .change_signing(&key.0, &key.1, |signing| {
                // Another gateway may have begun one meanwhile.
                let is_free = signing.current(now).is_none() || signing.flow == replaced;
                if is_free {
                    (signing.flow, signing.ends) = (Some(id.clone()), ends);
                }
                is_free
            })
            .await?;
        if signing.flow.as_ref() == Some(&id) {
            tracing::info!(server = %flow.server, flow = id.as_str(), "sign-in begun");
            return Ok(flow);
        }
        self.pending.take(&id).await?;
        match self.under_way(&signing, now).await? {
            Some(flow) => Ok(flow),
            None => Err(PendingError::Contended.into()),
        }
    }

    async fn under_way(&self, signing: &Signing, now: i64) -> Result<Option<Flow>, PendingError> {
        match signing.current(now) {
            None => Ok(None),
            Some(id) => self.pending.flow(id).await,
        }
    }

    async fn granted_scopes(&self, key: &Whose) -> Result<Vec<String>, VaultError> {
        let signed_in = self.vault.signed_in(&key.0, &key.1).await?.value;
        let Some(grant) = signed_in.and_then(|it| it.grant) else {
            return Ok(Vec::new());
        };
        let grant = self.vault.grant(&grant).await?.value;
        Ok(grant.map(|grant| grant.scopes).unwrap_or_default())
    }

    fn step(&self, key: &Whose) -> Result<(), SignInError> {
        let mut steps = self.steps.lock();
        steps.retain(|_, (_, last)| last.elapsed() < STEPS_FORGOTTEN);
        let (count, last) = steps.entry(key.clone()).or_insert((0, Instant::now()));
        if *count >= MAX_STEPS {
            return Err(SignInError::TooManySteps);
        }
        (*count, *last) = (*count + 1, Instant::now());
        Ok(())
    }

    /// Who Bowline is at this authorization server: as configured, by its document, as registered
    /// before, or registered now.
    async fn identity(
        &self,
        oauth: &ServerOAuth,
        authority: &Authority,
        found: &Discovered,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientIdentity, SignInError> {
        let named = |id: &str, secret: Option<Secret>| ClientIdentity {
            id: id.to_owned(),
            secret,
            authentication: None,
            redirect_uri: redirect_uri.to_owned(),
        };
        if let Some(client) = &oauth.client {
            let secret = client.secret.as_ref();
            return Ok(named(&client.id, secret.map(|it| Secret::new(it.expose()))));
        }
        let takes_documents = found.metadata.get("client_id_metadata_document_supported");
        if let Some(url) = &oauth.client_metadata_url
            && takes_documents.and_then(serde_json::Value::as_bool) == Some(true)
        {
            return Ok(named(&url.to_string(), None));
        }
        let known = self.vault.registration(&found.issuer, redirect_uri).await?;
        if let Some(known) = known {
            return Ok(known);
        }
        let registered = authority.register(found, redirect_uri, scopes).await?;
        self.vault
            .put_registration(&found.issuer, &registered)
            .await?;
        Ok(registered)
    }

    /// Takes an authorization server's answer. The state that came with it is what is verified; an
    /// answer that is not taken changes nothing. How the sign-in then ended is returned, and told to
    /// everybody who waits.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        state: &str,
        delivery: Delivery,
        via: Via<'_>,
    ) -> Result<End, NotDelivered> {
        let id = FlowId::of(state);
        let flow = self.pending.flow(&id).await?.ok_or(NotDelivered::Unknown)?;
        let is_its_browser = match via {
            Via::Courier | Via::Loopback => true,
            Via::Browser(shown) => match (&flow.browser, shown) {
                (Some(secret), Some(shown)) => secret.is(shown),
                _ => false,
            },
        };
        if !flow.begun.state.is(state) || flow.is_over(clock::unix_seconds()) || !is_its_browser {
            return Err(NotDelivered::Unknown);
        }
        let (Delivery::Code { iss, .. } | Delivery::Error { iss, .. }) = &delivery;
        let iss = match (iss, via) {
            // It passed on what it was given, and knows of no more.
            (None, Via::Courier) => Some(flow.found.issuer.clone()),
            (iss, _) => iss.clone(),
        };
        check_issuer(&flow.found, iss.as_deref()).map_err(|_| NotDelivered::Issuer)?;
        // A flow that was taken is finished even if the browser that brought the answer leaves.
        let sign_ins = Arc::clone(self);
        let finishing = async move { sign_ins.finish(&id, delivery, iss.as_deref()).await };
        match self.grants.tracker().spawn(finishing).await {
            Ok(finished) => finished,
            Err(_) => Err(NotDelivered::GivenUp),
        }
    }

    /// Takes a flow, for one delivery alone, and ends it.
    async fn finish(
        &self,
        id: &FlowId,
        delivery: Delivery,
        iss: Option<&str>,
    ) -> Result<End, NotDelivered> {
        let flow = self.pending.take(id).await?.ok_or(NotDelivered::Unknown)?;
        let end = match delivery {
            Delivery::Code { code, .. } => self.exchange(&flow, &code, iss).await,
            Delivery::Error { error, .. } if error == "access_denied" => End::Declined,
            Delivery::Error { error, .. } => End::Failed(format!(
                "the authorization server answered {}",
                code_of(&error)
            )),
        };
        self.end(&flow, end.clone()).await?;
        Ok(end)
    }

    async fn exchange(&self, flow: &Flow, code: &Secret, iss: Option<&str>) -> End {
        let exchanged = async {
            let authority = self.authorities.of(&flow.server_url)?;
            let tokens = authority
                .exchange(&flow.found, &flow.client, &flow.begun, code.expose(), iss)
                .await?;
            self.keep(flow, tokens).await?;
            Ok::<_, SignInError>(())
        };
        match exchanged.await {
            Ok(()) => End::SignedIn,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, server = %flow.server, "a sign-in failed at its end");
                End::Failed(error.to_string())
            }
        }
    }

    /// Keeps what a sign-in brought.
    async fn keep(&self, flow: &Flow, tokens: Tokens) -> Result<(), SignInError> {
        let found = (flow.found.clone(), flow.client.clone());
        self.grants
            .sign_in(&flow.caller, &flow.server_url, found, tokens)
            .await?;
        Ok(())
    }

    /// The person, or whoever asked the person, said no.
    pub(crate) async fn decline(&self, id: &FlowId) -> Result<(), PendingError> {
        if let Some(flow) = self.pending.take(id).await? {
            self.end(&flow, End::Declined).await?;
        }
        Ok(())
    }

    /// Forgets that a caller said no.
    pub(crate) async fn ask_again(&self, account: &Account) -> Result<(), PendingError> {
        let (caller, url) = account.key();
        let forget = |signing: &mut Signing| std::mem::take(&mut signing.declined_until) != 0;
        self.pending.change_signing(&caller, &url, forget).await?;
        Ok(())
    }

    async fn end(&self, flow: &Flow, end: End) -> Result<(), PendingError> {
        let (id, now) = (flow.id(), clock::unix_seconds());
        tracing::info!(server = %flow.server, flow = id.as_str(), end = end.name(), "sign-in ended");
        self.pending
            .change_signing(&flow.caller, &flow.server_url, |signing| {
                if signing.flow.as_ref() == Some(&id) {
                    signing.flow = None;
                }
                if end == End::Declined {
                    signing.declined_until = now + DECLINE_REMEMBERED;
                }
                signing.last = Some((id.clone(), end.clone()));
                true
            })
            .await?;
        self.ended.notify_waiters();
        Ok(())
    }

    /// Waits until a flow has ended. Dropping the wait leaves the flow alone.
    pub(crate) async fn ended(&self, flow: &Flow) -> End {
        let id = flow.id();
        loop {
            let told = self.ended.notified();
            match self.pending.signing(&flow.caller, &flow.server_url).await {
                Ok(signing) => {
                    if let Some(end) = signing.end_of(&id, clock::unix_seconds()) {
                        return end;
                    }
                }
                // It is looked again: whether it has ended is only not known now.
                Err(error) => tracing::debug!(%error, "a sign-in could not be looked at"),
            }
            // Its deadline is nobody's to tell, and another gateway's end neither.
            drop(tokio::time::timeout(LOOK_EVERY, told).await);
        }
    }

    /// A flow that somebody has a link to.
    pub(crate) async fn flow(&self, id: &FlowId) -> Result<Option<Flow>, PendingError> {
        let flow = self.pending.flow(id).await?;
        Ok(flow.filter(|flow| !flow.is_over(clock::unix_seconds())))
    }

    /// Binds a flow to the browser that opened its start page first: to the one that has this
    /// already, or to a new one. `None`: another one has it.
    pub(crate) async fn claim(
        &self,
        id: &FlowId,
        shown: Option<&str>,
        fresh: &Secret,
    ) -> Result<Option<Secret>, PendingError> {
        let flow = self.pending.change(id, |flow| {
            let is_free = flow.browser.is_none();
            if is_free {
                flow.browser = Some(fresh.clone());
            }
            is_free
        });
        if let Some(flow) = flow.await? {
            return Ok(flow.browser);
        }
        let flow = self.pending.flow(id).await?;
        Ok(flow
            .and_then(|flow| flow.browser)
            .filter(|browser| shown.is_some_and(|shown| browser.is(shown))))
    }

    /// The flow that waits for a caller at a server, if one does.
    pub(crate) async fn waiting(
        &self,
        caller: &str,
        server_url: &str,
    ) -> Result<Option<Flow>, PendingError> {
        let signing = self.pending.signing(caller, server_url).await?;
        self.under_way(&signing, clock::unix_seconds()).await
    }
}

#[cfg(test)]
impl SignIns {
    /// Sign-ins of nobody.
    pub(crate) fn idle() -> Arc<Self> {
        use crate::store::sealed::SealKeys;
        use crate::store::{Memory, Store};
        let tls = crate::egress::Tls::platform();
        let (vault, authorities) = (
            Arc::new(Vault::Memory(super::vault::Memory::default())),
            Arc::new(Authorities::new(tls)),
        );
        let renew: Arc<Authorities> = Arc::clone(&authorities);
        let tracker = tokio_util::task::TaskTracker::new();
        let grants = Grants::new(Arc::clone(&vault), renew, tracker);
        let keys = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
        let store = Arc::new(Store::Memory(Memory::new()));
        let settings = config::OAuth::default();
        let pending = Pending::new(store, keys, settings.deadline);
        let url = "http://127.0.0.1:9";
        Self::new((grants, vault), pending, settings, url, authorities)
    }
}

// === impl End ===

impl End {
    fn name(&self) -> &'static str {
        match self {
            Self::SignedIn => "signed_in",
            Self::Declined => "declined",
            Self::Failed(_) => "failed",
        }
    }
}

/// What is asked for: what the operator configured, else what the server wants and, where it wants
/// more than was granted, that too.
fn scopes(
    oauth: &ServerOAuth,
    found: &Discovered,
    wanted: &Wanted,
    known: Vec<String>,
) -> Vec<String> {
    let mut scopes = match oauth.scopes.is_empty() {
        false => oauth.scopes.clone(),
        true => found.scopes.clone(),
    };
    if wanted.is_step_up {
        let more = wanted.challenge.iter().flat_map(|it| &it.scopes).cloned();
        scopes.extend(known.into_iter().chain(more));
    }
    let offered = found.metadata.get("scopes_supported");
    let offers_refresh = offered
        .and_then(serde_json::Value::as_array)
        .is_some_and(|offered| offered.iter().any(|scope| scope == "offline_access"));
    if offers_refresh && !scopes.is_empty() {
        scopes.push("offline_access".to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    scopes
}

/// An error code as far as it can be one: anybody could have written it.
fn code_of(error: &str) -> &str {
    let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    match error.len() <= 40 && error.bytes().all(is_code) {
        true => error,
        false => "an error",
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
