//! One caller at one server that wants its callers signed in: what a leg asks for a bearer, and tells
//! what the server thought of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_wire::message::Initialized;
use http::StatusCode;

use super::bearer::Bearer;
use super::challenge::{Challenge, TokenError};
use super::flow::Flow;
use super::grants::{AtHand, GrantError};
use super::identity::identity_of;
use super::pending::PendingError;
use super::sign_ins::SignIns;
use crate::session::Caller;

/// The largest answer to `initialize` that is remembered.
const MAX_REMEMBERED: usize = 64 * 1024;

/// One caller at one server.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) sign_ins: Arc<SignIns>,
    /// The server's name, for people.
    pub(super) server: Box<str>,
    /// The caller's identity.
    caller: Box<str>,
    server_url: Box<str>,
    /// The number of the sign-in whose token was sent last; 0 for none.
    sent: AtomicU64,
}

/// Whose a grant or a flow is: a caller's, at the server with a URL.
pub(super) type Whose = (Box<str>, Box<str>);

/// Why a caller has to sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What the server said, if it said anything.
    pub(crate) challenge: Option<Challenge>,
    /// The caller is signed in, and needs more scopes.
    pub(crate) is_step_up: bool,
}

/// What a 401 or 403 of a server means.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing ran; the request may go again, with this.
    Again(Arc<Bearer>),
    SignIn(Arc<Wanted>),
    /// It is the server's last word, and not about signing in.
    Refused,
}

impl Account {
    pub(crate) fn new(
        sign_ins: &Arc<SignIns>,
        caller: &Caller,
        server: &str,
        server_url: &http::Uri,
    ) -> Self {
        Self {
            sign_ins: Arc::clone(sign_ins),
            server: server.into(),
            caller: identity_of(caller),
            server_url: server_url.to_string().into(),
            sent: AtomicU64::new(0),
        }
    }

    /// What grants and flows of it are kept under.
    pub(super) fn key(&self) -> Whose {
        (self.caller.clone(), self.server_url.clone())
    }

    /// What a request carries; `None` if the caller is not signed in.
    pub(crate) async fn bearer(&self) -> Result<Option<Arc<Bearer>>, GrantError> {
        let grants = &self.sign_ins.grants;
        let bearer = match grants.at_hand(&self.caller, &self.server_url) {
            AtHand::Bearer(bearer) => Some(bearer),
            AtHand::SignedOut => None,
            // Boxed, because it is rare and large.
            AtHand::Unknown => Box::pin(grants.bearer(&self.caller, &self.server_url)).await?,
        };
        self.note(bearer.as_deref());
        Ok(bearer)
    }

    /// Remembers what the server said of itself in answer to this caller's `initialize`.
    pub(crate) fn remember_initialized(&self, result: &str) {
        if result.len() <= MAX_REMEMBERED {
            let mut last = self.sign_ins.initialized.lock();
            last.insert(self.key(), result.into());
        }
    }

    /// What it said last, if that was of this revision.
    pub(crate) fn last_initialized(&self, version: &str) -> Option<String> {
        let last = self.sign_ins.initialized.lock().get(&self.key()).cloned()?;
        let said: Initialized<'_> = serde_json::from_str(&last).ok()?;
        (said.version == version).then(|| last.to_string())
    }

    /// The flow that waits for the caller, if one does.
    pub(crate) async fn waiting(&self) -> Result<Option<Flow>, PendingError> {
        self.sign_ins.waiting(&self.caller, &self.server_url).await
    }

    fn note(&self, bearer: Option<&Bearer>) {
        let number = bearer.map_or(0, |bearer| bearer.sign_in);
        self.sent.store(number, Ordering::Relaxed);
    }

    /// The number of the sign-in whose token was sent last; 0 for none.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Whether somebody signed the caller out, as far as it is known.
    pub(crate) fn is_out(&self) -> bool {
        self.sign_ins.grants.is_out(&self.caller, &self.server_url)
    }

    /// Has it looked whether somebody did, if that was not done lately.
    pub(crate) fn look_if_out(&self) {
        let grants = &self.sign_ins.grants;
        grants.look_if_out(&self.caller, &self.server_url);
    }

    /// Whether the caller has signed in anew since the sign-in with this number, maybe as somebody
    /// else.
    pub(crate) fn is_another_than(&self, sign_in: u64) -> bool {
        match self.sign_ins.grants.at_hand(&self.caller, &self.server_url) {
            AtHand::Bearer(bearer) => bearer.sign_in != sign_in,
            AtHand::SignedOut | AtHand::Unknown => false,
        }
    }

    /// What the server's refusal of a request that carried `sent` means.
    pub(crate) async fn judge(
        &self,
        status: StatusCode,
        challenge: Option<Challenge>,
        sent: Option<&Arc<Bearer>>,
        may_go_again: bool,
    ) -> Result<Verdict, GrantError> {
        let error = challenge.as_ref().and_then(|challenge| challenge.error);
        let is_step_up = match (status, error) {
            (StatusCode::UNAUTHORIZED, _) => false,
            (_, Some(TokenError::InsufficientScope)) => true,
            _ => return Ok(Verdict::Refused),
        };
        // A server that says nothing of a token says nothing about it.
        if !is_step_up && sent.is_some() && challenge.is_none() {
            return Ok(Verdict::Refused);
        }
        if !is_step_up && may_go_again {
            let grants = &self.sign_ins.grants;
            let other = grants.refused(&self.caller, &self.server_url, sent).await?;
            if let Some(other) = other {
                self.note(Some(&other));
                return Ok(Verdict::Again(other));
            }
        }
        Ok(Verdict::SignIn(Arc::new(Wanted {
            challenge,
            is_step_up,
        })))
    }
}

// === impl Wanted ===

impl Wanted {
    /// Whether a flow that asks for these scopes would bring what is wanted.
    pub(super) fn is_covered_by(&self, scopes: &[String]) -> bool {
        let mut wanted = self
            .challenge
            .iter()
            .flat_map(|challenge| &challenge.scopes);
        !self.is_step_up || wanted.all(|scope| scopes.contains(scope))
    }
}
