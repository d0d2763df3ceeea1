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
use super::asked::Asked;
use super::authorities::Authorities;
use super::authority::{AuthorityError, check_issuer};
use super::first_step::scopes;
use super::flow::{Asks, Authorization, End, Flow, FlowId, Signing, Standing};
use super::grant::{ClientIdentity, Tokens};
use super::grants::{GrantError, Grants};
use super::pending::{Pending, PendingError};
use super::secret::Secret;
use super::vault::{Vault, VaultError};
use crate::clock;
use crate::config::{self, ServerOAuth};

/// How long a caller who said no is not asked again.
const DECLINE_REMEMBERED: i64 = 10 * 60;
/// How often it is looked whether another gateway has finished a flow.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a server may want more scopes, how often ones that it should have been content with, and
/// after which time it may again.
const MAX_STEPS: u32 = 8;
const MAX_FUTILE_STEPS: u32 = 1;
const STEPS_FORGOTTEN: Duration = Duration::from_secs(10 * 60);

/// The sign-ins of one gateway.
#[derive(Debug)]
pub(crate) struct SignIns {
    pub(super) grants: Arc<Grants>,
    pub(super) vault: Arc<Vault>,
    pub(super) pending: Pending,
    settings: config::OAuth,
    /// Where people reach this gateway's pages, without a slash at the end.
    public_url: Box<str>,
    pub(crate) authorities: Arc<Authorities>,
    /// One beginning at a time per caller and server.
    beginning: Mutex<HashMap<Whose, Arc<tokio::sync::Mutex<()>>>>,
    steps: Mutex<HashMap<Whose, Steps>>,
    pub(super) asked: Asked,
    /// What servers last said of themselves to a caller.
    pub(super) initialized: Mutex<HashMap<Whose, Box<str>>>,
    ended: Notify,
}

/// A few tries at something that may be away for a moment.
struct Tries {
    pause: Duration,
}

/// How often a server wanted more scopes of a caller lately.
#[derive(Debug)]
struct Steps {
    all: u32,
    /// Of these, how often it wanted what the caller had been granted.
    futile: u32,
    last: Instant,
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
            asked: Asked::default(),
            initialized: Mutex::default(),
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

    /// Where a person goes to sign in, if that is what the flow waits for.
    pub(crate) fn link(&self, flow: &Flow) -> Option<String> {
        let way = flow.authorization()?;
        Some(match self.comes_back_here(way) {
            true => format!("{}/oauth/start?flow={}", self.public_url, flow.id.as_str()),
            false => way.begun.authorize_url.clone(),
        })
    }

    /// Whether people come back to this gateway's own page.
    pub(crate) fn comes_back_here(&self, way: &Authorization) -> bool {
        way.client.redirect_uri == self.callback_url()
    }

    pub(super) fn callback_url(&self) -> String {
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
            && wanted.is_covered_by(flow.scopes())
            && is_as_configured(&flow, oauth)
        {
            return Ok(flow);
        }
        let mut known = Vec::new();
        if wanted.is_step_up {
            known = self.granted_scopes(&key).await?;
            self.step(&key, wanted.is_covered_by(&known))?;
        }
        let authority = self.authorities.of(&key.1)?;
        let found = authority.discover(wanted.challenge.as_ref()).await?;
        let scopes = scopes(oauth, &found, wanted, known);
        let asks = self.first_step(&key.0, oauth, &authority, (&found, scopes));
        let (asks, ends) = (asks.await?, now + seconds(self.settings.deadline));
        let flow = Flow::new(&key, &account.server, found, asks, ends);
        let flow = flow.map_err(PendingError::from)?;
        self.pending.add(&flow).await?;
        let (id, ends) = (flow.id.clone(), flow.ends);
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

    fn step(&self, key: &Whose, is_futile: bool) -> Result<(), SignInError> {
        let now = Instant::now();
        let mut steps = self.steps.lock();
        steps.retain(|_, steps| now - steps.last < STEPS_FORGOTTEN);
        let steps = steps.entry(key.clone()).or_insert(Steps {
            all: 0,
            futile: 0,
            last: now,
        });
        let all = steps.all + 1;
        let futile = steps.futile + u32::from(is_futile);
        if all > MAX_STEPS || futile > MAX_FUTILE_STEPS {
            return Err(SignInError::TooManySteps);
        }
        (steps.all, steps.futile, steps.last) = (all, futile, now);
        Ok(())
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
        let way = flow.authorization().ok_or(NotDelivered::Unknown)?;
        let may_deliver = match via {
            Via::Loopback => true,
            // What comes back to a page of ours comes by the browser that left from there.
            Via::Courier => !self.comes_back_here(way),
            Via::Browser(shown) => match (&way.browser, shown) {
                (Some(secret), Some(shown)) => secret.is(shown),
                _ => false,
            },
        };
        if !way.begun.state.is(state) || flow.is_over(clock::unix_seconds()) || !may_deliver {
            return Err(NotDelivered::Unknown);
        }
        let (Delivery::Code { iss, .. } | Delivery::Error { iss, .. }) = &delivery;
        let iss = match (iss, via) {
            // It passed on what it was given, and knows of no more.
            (None, Via::Courier) => Some(flow.found.issuer.clone()),
            (iss, _) => iss.clone(),
        };
        check_issuer(&flow.found, iss.as_deref()).map_err(|_| NotDelivered::Issuer)?;
        // A flow that was taken is finished even if whoever brought the answer leaves: a code is good
        // once.
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
            Delivery::Code { code, .. } => match flow.authorization() {
                Some(way) => self.exchange(&flow, way, (&code, iss)).await,
                None => return Err(NotDelivered::Unknown),
            },
            Delivery::Error { error, .. } if error == "access_denied" => End::Declined,
            Delivery::Error { error, .. } => End::Failed(format!(
                "the authorization server answered {}",
                code_of(&error)
            )),
        };
        self.end(&flow, end.clone()).await;
        Ok(end)
    }

    async fn exchange(
        &self,
        flow: &Flow,
        way: &Authorization,
        (code, iss): (&Secret, Option<&str>),
    ) -> End {
        let exchanged = async {
            let authority = self.authorities.of(&flow.server_url)?;
            let tokens = authority
                .exchange(&flow.found, &way.client, &way.begun, code.expose(), iss)
                .await?;
            self.keep(flow, way.client.clone(), tokens).await?;
            if way.is_client_named {
                // Only now: a client that somebody mistyped would be in everybody's way.
                let kept =
                    self.vault
                        .put_named_client(&flow.caller, &flow.found.issuer, &way.client);
                kept.await?;
            }
            Ok(())
        };
        ended_as(flow, exchanged.await)
    }

    /// Keeps what a sign-in brought; a vault that is away for a moment is waited for, because nobody
    /// can bring it twice.
    pub(super) async fn keep(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        tokens: Tokens,
    ) -> Result<(), SignInError> {
        let mut tries = Tries::new();
        loop {
            let found = (flow.found.clone(), client.clone());
            let keeping =
                self.grants
                    .sign_in(&flow.caller, &flow.server_url, found, tokens.clone());
            match keeping.await {
                Ok(_) => return Ok(()),
                Err(_) if tries.again().await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The person, or whoever asked the person, said no.
    pub(crate) async fn decline(&self, id: &FlowId) -> Result<(), PendingError> {
        if let Some(flow) = self.pending.take(id).await? {
            self.end(&flow, End::Declined).await;
        }
        Ok(())
    }

    /// The caller wants a link that works: forgets a no, and a flow that some browser has already,
    /// which may not be the caller's. That one can still be finished.
    pub(crate) async fn ask_again(&self, account: &Account) -> Result<(), PendingError> {
        let (caller, url) = account.key();
        let flow = self.waiting(&caller, &url).await?;
        let has_browser = |flow: &Flow| {
            flow.authorization()
                .is_some_and(|way| way.browser.is_some())
        };
        let taken = flow.filter(has_browser);
        let taken = taken.map(|flow| flow.id);
        let forget = |signing: &mut Signing| {
            let was_declined = std::mem::take(&mut signing.declined_until) != 0;
            let is_taken = taken.is_some() && signing.flow == taken;
            if is_taken {
                signing.flow = None;
            }
            was_declined || is_taken
        };
        self.pending.change_signing(&caller, &url, forget).await?;
        Ok(())
    }

    /// Tells everybody who waits how a flow ended.
    pub(super) async fn end(&self, flow: &Flow, end: End) {
        let mut tries = Tries::new();
        while let Err(error) = self.note_end(flow, &end).await {
            if !tries.again().await {
                tracing::warn!(%error, server = %flow.server, "nobody is told how a sign-in ended");
                break;
            }
        }
        self.ended.notify_waiters();
    }

    async fn note_end(&self, flow: &Flow, end: &End) -> Result<(), PendingError> {
        let (id, now) = (flow.id.clone(), clock::unix_seconds());
        tracing::info!(server = %flow.server, flow = id.as_str(), end = end.name(), "sign-in ended");
        self.pending
            .change_signing(&flow.caller, &flow.server_url, |signing| {
                if signing.flow.as_ref() == Some(&id) {
                    signing.flow = None;
                }
                if *end == End::Declined {
                    signing.declined_until = now + DECLINE_REMEMBERED;
                }
                signing.last = Some((id.clone(), end.clone()));
                true
            })
            .await?;
        Ok(())
    }

    /// Waits until a flow has ended; `None` where another one goes on in its place. Dropping the wait
    /// leaves the flow alone.
    pub(crate) async fn ended(&self, flow: &Flow) -> Option<End> {
        loop {
            let told = self.ended.notified();
            match self.pending.signing(&flow.caller, &flow.server_url).await {
                Ok(signing) => match signing.of(flow, clock::unix_seconds()) {
                    Standing::UnderWay => {}
                    Standing::Ended(end) => return Some(end),
                    Standing::Replaced => return None,
                },
                // It is looked again: whether it has ended is only not known now.
                Err(error) => tracing::debug!(%error, "a sign-in could not be looked at"),
            }
            // Its deadline is nobody's to tell, and another gateway's end neither.
            drop(tokio::time::timeout(LOOK_EVERY, told).await);
        }
    }

    /// Puts another flow in the place of one that was taken out.
    pub(super) async fn replace(&self, old: &Flow, new: &Flow) -> Result<(), PendingError> {
        self.pending.add(new).await?;
        self.pending
            .change_signing(&old.caller, &old.server_url, |signing| {
                let is_current = signing.flow.as_ref() == Some(&old.id);
                if is_current {
                    (signing.flow, signing.ends) = (Some(new.id.clone()), new.ends);
                }
                is_current
            })
            .await?;
        self.ended.notify_waiters();
        Ok(())
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
        let flow = self.pending.change(id, |flow| match &mut flow.asks {
            Asks::Authorization(way) if way.browser.is_none() => {
                way.browser = Some(fresh.clone());
                true
            }
            _ => false,
        });
        if flow.await?.is_some() {
            return Ok(Some(fresh.clone()));
        }
        let flow = self.pending.flow(id).await?;
        let way = flow.as_ref().and_then(Flow::authorization);
        Ok(way
            .and_then(|way| way.browser.clone())
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

/// Whether a flow is one that would still be begun: the operator may have changed that meanwhile.
fn is_as_configured(flow: &Flow, oauth: &ServerOAuth) -> bool {
    let is_for_tokens = matches!(flow.asks, Asks::Tokens { .. });
    let is_for_client = matches!(flow.asks, Asks::Client { .. });
    is_for_tokens == (oauth.flow == config::Flow::ClientDriven)
        && !(is_for_client && oauth.client.is_some())
}

// === impl Tries ===

impl Tries {
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LAST_PAUSE: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self {
            pause: Self::FIRST_PAUSE,
        }
    }

    /// Waits for the next try. `false`: there were enough.
    async fn again(&mut self) -> bool {
        if self.pause > Self::LAST_PAUSE {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}

/// How a flow ended that its last step could still break.
pub(super) fn ended_as(flow: &Flow, done: Result<(), SignInError>) -> End {
    match done {
        Ok(()) => End::SignedIn,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "a sign-in failed at its end");
            End::Failed(error.to_string())
        }
    }
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
