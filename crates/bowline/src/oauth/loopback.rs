//! Sign-ins of processes that serve one person on this machine: several of them share one sign-in.

use super::flow::{Flow, FlowOutcome};
use super::flows::Flows;
use super::grants::GrantError;
use super::vault::{Claim, VaultError};

impl Flows {
    /// Waits until no other process shows a browser for a sign-in of this flow's account. The claim ends when it
    /// is dropped, or when its holder dies.
    pub(crate) async fn claim_browser(&self, flow: &Flow) -> Result<Claim, VaultError> {
        let vault = self.grants.vault();
        vault.claim_sign_in(&flow.caller, &flow.server_url).await
    }

    /// Ends a flow whose account was signed in by another process since the server refused its last grant. `false`: it
    /// was not.
    pub(crate) async fn end_if_signed_in(&self, flow: &Flow) -> Result<bool, GrantError> {
        let (caller, server_url) = (&flow.caller, &flow.server_url);
        let grants = &self.grants;
        let is_signed_in = grants
            .take_newer(caller, server_url, flow.after, &flow.missing_scopes)
            .await?;
        if is_signed_in {
            self.end(flow, FlowOutcome::SignedIn).await;
        }
        Ok(is_signed_in)
    }
}
