//! One caller at one OAuth-protected server: where a leg gets its bearer token, and reports the server's
//! answer to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_wire::message::Initialized;
use http::StatusCode;

use super::account_key::AccountKey;
use super::bearer::Bearer;
use super::challenge::{Challenge, TokenError};
use super::flow::Flow;
use super::flow_store::FlowStoreError;
use super::flows::Flows;
use super::grants::{CachedBearer, GrantError};
use super::reason::SignInReason;
use crate::caller::Caller;
use crate::callers::identity_of;

/// The largest result of `initialize` that is cached.
const MAX_REMEMBERED: usize = 64 * 1024;

/// One caller at one server.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) flows: Arc<Flows>,
    /// The server's name, for people.
    pub(super) server: Box<str>,
    key: AccountKey,
    /// The number of the sign-in whose token was sent last; 0 for none.
    sent: AtomicU64,
}

/// What a server's 401 or 403 means.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The server did not process the request; retry it with this token.
    Retry(Arc<Bearer>),
    SignIn(Arc<SignInReason>),
    /// A sign-in would not help: the answer goes to the client.
    Refused,
}

impl Account {
    pub(crate) fn new(
        flows: &Arc<Flows>,
        caller: &Caller,
        server: &str,
        server_url: &http::Uri,
    ) -> Self {
        Self {
            flows: Arc::clone(flows),
            server: server.into(),
            key: AccountKey {
                caller: identity_of(caller),
                server_url: server_url.to_string().into(),
            },
            sent: AtomicU64::new(0),
        }
    }

    /// What its grants and flows are stored under.
    pub(super) fn key(&self) -> &AccountKey {
        &self.key
    }

    /// The token for a request; `None` if the caller is not signed in.
    pub(crate) async fn bearer(&self) -> Result<Option<Arc<Bearer>>, GrantError> {
        let grants = &self.flows.grants;
        let bearer = match grants.cached_bearer(&self.key.caller, &self.key.server_url) {
            CachedBearer::Bearer(bearer) => Some(bearer),
            CachedBearer::SignedOut => None,
            // Boxed, because it is rare and large.
            CachedBearer::Unknown => {
                Box::pin(grants.bearer(&self.key.caller, &self.key.server_url)).await?
            }
        };
        self.note(bearer.as_deref());
        Ok(bearer)
    }

    /// Caches the server's result of this caller's `initialize`.
    pub(crate) fn remember_initialized(&self, result: &str) {
        if result.len() <= MAX_REMEMBERED {
            let mut last = self.flows.initialized.lock();
            last.insert(self.key.clone(), (self.sent(), result.into()));
        }
    }

    /// The last such result, if it was for this protocol revision, and for the person who signed in last: it may
    /// say something about them.
    pub(crate) fn last_initialized(&self, version: &str) -> Option<String> {
        let (sign_in, last) = self.flows.initialized.lock().get(&self.key).cloned()?;
        let is_anothers = self.is_signed_out() || self.is_another_than(sign_in);
        if sign_in != 0 && is_anothers {
            self.flows.initialized.lock().remove(&self.key);
            return None;
        }
        let said: Initialized<'_> = serde_json::from_str(&last).ok()?;
        (said.version == version).then(|| last.to_string())
    }

    /// The flow that is under way for this account, if any.
    pub(crate) async fn current_flow(&self) -> Result<Option<Flow>, FlowStoreError> {
        self.flows
            .current_flow(&self.key.caller, &self.key.server_url)
            .await
    }

    fn note(&self, bearer: Option<&Bearer>) {
        let number = bearer.map_or(0, |bearer| bearer.sign_in);
        self.sent.store(number, Ordering::Relaxed);
    }

    /// The number of the sign-in whose token was sent last; 0 for none.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The number of the caller's sign-in, as far as this gateway knows; 0 for none.
    pub(crate) fn sign_in(&self) -> u64 {
        let grants = &self.flows.grants;
        grants.sign_in_number(&self.key.caller, &self.key.server_url)
    }

    /// Whether the caller was signed out, as far as this gateway knows.
    pub(crate) fn is_signed_out(&self) -> bool {
        self.flows
            .grants
            .is_signed_out(&self.key.caller, &self.key.server_url)
    }

    /// Starts a check for a sign-out, unless one ran recently.
    pub(crate) fn check_sign_out(&self) {
        let grants = &self.flows.grants;
        grants.check_sign_out(&self.key.caller, &self.key.server_url);
    }

    /// Whether the caller has signed in again since the sign-in with this number, maybe as somebody else.
    pub(crate) fn is_another_than(&self, sign_in: u64) -> bool {
        match self
            .flows
            .grants
            .cached_bearer(&self.key.caller, &self.key.server_url)
        {
            CachedBearer::Bearer(bearer) => bearer.sign_in != sign_in,
            CachedBearer::SignedOut | CachedBearer::Unknown => false,
        }
    }

    /// Decides what to do after the server refused a request that carried `sent`.
    pub(crate) async fn judge(
        &self,
        status: StatusCode,
        challenge: Option<Challenge>,
        sent: Option<&Arc<Bearer>>,
        may_retry: bool,
    ) -> Result<Verdict, GrantError> {
        let error = challenge.as_ref().and_then(|challenge| challenge.error);
        let is_step_up = match (status, error) {
            (StatusCode::UNAUTHORIZED, _) => false,
            (_, Some(TokenError::InsufficientScope)) => true,
            _ => return Ok(Verdict::Refused),
        };
        // A 401 without a challenge says nothing about the token.
        if !is_step_up && sent.is_some() && challenge.is_none() {
            return Ok(Verdict::Refused);
        }
        if !is_step_up && may_retry {
            let grants = &self.flows.grants;
            let other = grants
                .refused(&self.key.caller, &self.key.server_url, sent)
                .await?;
            if let Some(other) = other {
                self.note(Some(&other));
                return Ok(Verdict::Retry(other));
            }
        }
        Ok(Verdict::SignIn(Arc::new(SignInReason {
            challenge,
            is_step_up,
            refused: self
                .flows
                .grants
                .refused_grant(&self.key.caller, &self.key.server_url, sent),
        })))
    }
}
