//! Sign-ins of a process that serves one person on this machine: each flow has its own listener, and several
//! such processes share one sign-in.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::flow::{Flow, FlowOutcome};
use super::flows::Flows;
use super::grants::GrantError;
use super::vault::{Claim, VaultError};

/// A flow's own listener on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoopbackAddress {
    pub(crate) redirect_uri: String,
    /// The URL, without any secret, that leads this user's browser to the authorization server. `None` where
    /// the system does not say whose a connection is.
    pub(crate) start_url: Option<String>,
}

/// The listeners to which browsers return.
pub(crate) trait Loopback: fmt::Debug + Send + Sync {
    /// The address for the next flow. Somebody listens there from now on.
    fn address(&self) -> io::Result<LoopbackAddress>;

    /// This flow has that address.
    fn started(&self, flow: &Flow);

    /// Whether flows are shown in a browser, without the client's help.
    fn opens_browser(&self) -> bool;
}

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
