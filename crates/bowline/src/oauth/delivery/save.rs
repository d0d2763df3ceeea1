//! Saving what a sign-in brought. A code can be exchanged once, so tokens are not given up because the vault
//! is unavailable for a moment.

use std::time::Duration;

use crate::oauth::flow::Flow;
use crate::oauth::flows::Flows;
use crate::oauth::grant::{ClientIdentity, Credentials, Grant, Tokens};
use crate::oauth::sign_in_error::SignInError;
use bowline_system::clock;

/// A few retries of an operation that may be unavailable for a moment.
pub(super) struct Backoff {
    pause: Duration,
}

impl Flows {
    /// Stores the tokens of a sign-in. It retries while the vault is unavailable, because a code cannot be
    /// exchanged twice.
    pub(in crate::oauth) async fn keep(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        tokens: Tokens,
    ) -> Result<(), SignInError> {
        let credentials = Credentials {
            discovery: flow.discovery.clone(),
            client,
            tokens,
        };
        let mut backoff = Backoff::new();
        loop {
            match self.keep_now(flow, credentials.clone()).await {
                Ok(()) => return Ok(()),
                Err(SignInError::SignedOut) => {
                    self.give_back(flow, credentials).await;
                    return Err(SignInError::SignedOut);
                }
                Err(SignInError::Vault(_) | SignInError::FlowStore(_)) if backoff.wait().await => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn keep_now(&self, flow: &Flow, credentials: Credentials) -> Result<(), SignInError> {
        if !self.callers.permits_sign_in(&flow.caller, &flow.server) {
            return Err(SignInError::SignedOut);
        }
        // An exchange may take long, and the caller may have signed in by another link meanwhile.
        if !self.is_under_way(flow).await? {
            let sign_outs = self
                .grants
                .sign_outs(&flow.caller, &flow.server_url)
                .await?;
            return Err(match sign_outs > flow.sign_outs {
                true => SignInError::SignedOut,
                false => SignInError::Replaced,
            });
        }
        // First: a grant whose place is not known would survive a sign-out.
        let vault = self.grants.vault();
        vault.note_place(&flow.server, &flow.server_url).await?;
        self.grants
            .sign_in(&flow.caller, &flow.server_url, flow.sign_outs, credentials)
            .await?;
        self.forget_initialized(&flow.caller, &flow.server_url);
        Ok(())
    }

    /// Revokes tokens whose caller signed out or was removed.
    async fn give_back(&self, flow: &Flow, credentials: Credentials) {
        let grant = Grant::new(&flow.caller, credentials, 0, clock::unix_seconds());
        let revoked = match self.auth_servers.of(&flow.server_url) {
            Ok(auth_server) => auth_server.revoke_grant(&grant).await,
            Err(error) => Err(error),
        };
        if let Err(error) = revoked {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "token revocation failed");
        }
    }
}

// === impl Backoff ===

impl Backoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LAST_PAUSE: Duration = Duration::from_secs(10);

    pub(super) fn new() -> Self {
        Self {
            pause: Self::FIRST_PAUSE,
        }
    }

    /// Waits before the next retry. `false`: there were enough.
    pub(super) async fn wait(&mut self) -> bool {
        if self.pause > Self::LAST_PAUSE {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}
