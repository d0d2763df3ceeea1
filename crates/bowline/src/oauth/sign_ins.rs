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
use super::authority::AuthorityError;
use super::beginning::Failures;
use super::first_step::scopes;
use super::flow::{Asks, End, Flow, FlowId, Kind, Signing, Standing};
use super::grants::{GrantError, Grants};
use super::identity::Identities;
use super::pending::{Pending, PendingError};
use super::secret::Secret;
use super::trust::Trust;
use super::vault::{Vault, VaultError};
use crate::clock;
use crate::config::{self, ServerOAuth};

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
    pub(super) failures: Failures,
    steps: Mutex<HashMap<Whose, Steps>>,
    pub(super) asked: Asked,
    /// What servers last said of themselves to a caller.
    pub(super) initialized: Mutex<HashMap<Whose, Box<str>>>,
    pub(super) ended: Notify,
    /// Whose grants and flows are whose.
    pub(crate) identities: Identities,
}

/// How often a server wanted more scopes of a caller lately.
#[derive(Debug)]
struct Steps {
    all: u32,
    /// Of these, how often it wanted what the caller had been granted.
    futile: u32,
    last: Instant,
}

/// Why there is no sign-in to wait for.
#[derive(Debug, Error)]
pub(crate) enum SignInError {
    #[error("the sign-in was declined{}; call the tool `sign_in` to try again", in_brackets(.said.as_deref()))]
    Declined { said: Option<String> },
    #[error("another sign-in took its place")]
    Replaced,
    #[error("the caller was signed out meanwhile, or is not configured any more")]
    SignedOut,
    #[error("the server wants more scopes again and again")]
    TooManySteps,
    #[error(
        "the authorization server was not found within {}",
        humantime::format_duration(*.0)
    )]
    TooSlow(Duration),
    /// It failed a moment ago, for this reason.
    #[error("{0}")]
    LikeBefore(Box<str>),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    // What a store says is for the operator, who finds it in the log.
    #[error("what is known of sign-ins cannot be reached now; try again later")]
    Pending(#[from] PendingError),
    #[error("what was granted cannot be reached now; try again later")]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Grant(GrantError),
}

impl From<GrantError> for SignInError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Vault(error) => Self::Vault(error),
            GrantError::SignedOut => Self::SignedOut,
            error => Self::Grant(error),
        }
    }
}

/// What the authorization server said, after what it is about.
fn in_brackets(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!(" (\"{said}\")"))
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
            failures: Failures::default(),
            steps: Mutex::default(),
            asked: Asked::default(),
            initialized: Mutex::default(),
            ended: Notify::new(),
            identities: Identities::default(),
        })
    }

    pub(crate) fn settings(&self) -> &config::OAuth {
        &self.settings
    }

    /// Takes note of what other processes did.
    pub(crate) async fn notice(&self) {
        self.grants.notice().await;
    }

    /// Waits until it is known of a caller that it has signed out.
    pub(crate) async fn somebody_is_out(&self) {
        self.grants.somebody_is_out().await;
    }

    /// Where people reach this gateway's pages, without a slash at the end.
    pub(crate) fn public_url(&self) -> &str {
        &self.public_url
    }

    /// The kind of the flows that are begun here at a server with these settings.
    fn kind(&self, oauth: &ServerOAuth) -> Kind {
        match (oauth.flow, &oauth.redirect_uri) {
            (config::Flow::ClientDriven, _) => Kind::ClientDriven,
            (_, Some(uri)) => Kind::Drive {
                redirect_uri: uri.as_str().to_owned(),
            },
            (_, None) => Kind::Managed {
                pages: self.public_url.to_string(),
            },
        }
    }

    pub(super) fn callback_url(&self) -> String {
        format!("{}/oauth/callback", self.public_url)
    }

    /// What [`SignIns::begin`] does, however long it takes.
    pub(super) async fn begin_now(
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
        let outs = self.grants.outs(&key.0, &key.1).await?;
        let signing = self.pending.signing(&key.0, &key.1).await?;
        if now < signing.declined_until {
            return Err(SignInError::Declined { said: None });
        }
        let kind = self.kind(oauth);
        if let Some(flow) = self.under_way(&signing, now).await? {
            let is_fitting =
                wanted.is_covered_by(flow.scopes()) && is_as_configured(&flow, &kind, oauth);
            // Somebody has signed in, and what that brought is nearly here.
            if flow.is_finishing(now) || (flow.is_open(now) && is_fitting) {
                return Ok(flow);
            }
        }
        self.failures.check(&key)?;
        let mut known = Vec::new();
        if wanted.is_step_up {
            known = self.granted_scopes(&key).await?;
            self.step(&key, wanted.is_covered_by(&known))?;
        }
        let authority = self.authorities.of(&key.1)?;
        let found = authority.discover(wanted.challenge.as_ref()).await?;
        if signing.flow.is_some() && signing.current(now).is_none() {
            self.doubt_registration(&key.1, oauth, &found).await?;
        }
        let scopes = scopes(oauth, &found, wanted, known);
        let asks = self.first_step(&key, oauth, &authority, (&found, scopes));
        let (asks, ends) = (asks.await?, now + seconds(self.settings.deadline));
        let flow = Flow::new(&key, &account.server, found, kind, asks, (ends, outs));
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
            tracing::info!(server = %flow.server, flow = ?id, "sign-in begun");
            if let Some(replaced) = replaced {
                self.forget(&replaced).await;
                self.ended.notify_waiters();
            }
            return Ok(flow);
        }
        self.forget(&id).await;
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

    /// The caller wants a link that works: forgets a no, and a flow that some browser has already,
    /// which may not be the caller's. That one is dead from then on.
    pub(crate) async fn ask_again(&self, account: &Account) -> Result<(), PendingError> {
        let (caller, url) = account.key();
        let flow = self.waiting(&caller, &url).await?;
        let is_taken = |flow: &Flow| {
            let way = flow.authorization();
            flow.taken.is_some() || way.is_some_and(|way| way.browser.is_some())
        };
        let taken = flow.filter(is_taken);
        // Its browser may be at a page that says that nobody knows the client.
        if let Some((flow, way)) = taken
            .as_ref()
            .and_then(|it| Some((it, it.authorization()?)))
        {
            self.forget_client(flow, &way.client).await;
        }
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
        if let Some(taken) = taken {
            self.forget(&taken).await;
        }
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

    /// Puts another flow in the place of one that was taken.
    pub(super) async fn replace(&self, old: &Flow, new: &Flow) -> Result<(), PendingError> {
        self.pending.add(new).await?;
        let signing = self
            .pending
            .change_signing(&old.caller, &old.server_url, |signing| {
                let is_current = signing.flow.as_ref() == Some(&old.id);
                if is_current {
                    (signing.flow, signing.ends) = (Some(new.id.clone()), new.ends);
                }
                is_current
            })
            .await?;
        self.forget(&old.id).await;
        if signing.flow.as_ref() != Some(&new.id) {
            self.forget(&new.id).await;
        }
        self.ended.notify_waiters();
        Ok(())
    }

    /// A flow that begins with a page of ours, to which somebody has the link.
    pub(crate) async fn linked(&self, id: &FlowId) -> Result<Option<Flow>, PendingError> {
        let flow = self.pending.flow(id).await?;
        let is_one = |flow: &Flow| flow.is_managed() && flow.is_open(clock::unix_seconds());
        match flow.filter(is_one) {
            Some(flow) if self.is_under_way(&flow).await? => Ok(Some(flow)),
            _ => Ok(None),
        }
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
            let is_managed = flow.is_managed();
            match &mut flow.asks {
                Asks::Authorization(way) if is_managed && way.browser.is_none() => {
                    way.browser = Some(fresh.clone());
                    true
                }
                _ => false,
            }
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
fn is_as_configured(flow: &Flow, kind: &Kind, oauth: &ServerOAuth) -> bool {
    let is_for_client = matches!(flow.asks, Asks::Client { .. });
    // Whichever gateway's pages they are, people come back to them.
    let is_of_kind =
        flow.kind == *kind || (flow.is_managed() && matches!(kind, Kind::Managed { .. }));
    is_of_kind
        && !(is_for_client && oauth.client.is_some())
        && Trust::of(oauth).check(&flow.found).is_ok()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
