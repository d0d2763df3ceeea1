//! OAuth: for OAuth-protected servers Bowline is the OAuth client.
//!
//! A [`challenge`] says what a server demands; [`discovery`] finds its authorization server. The
//! [`auth_server`] registers Bowline and issues tokens, if the operator's [`trust`] allows it; [`auth_servers`]
//! has the settings of each. A [`grant`] is what a sign-in brings; the [`vault`] stores grants; [`grants`] are
//! those that this gateway uses and refreshes; a [`bearer`] is the token that a request carries. What goes wrong
//! is an [`auth_server_error`] or a [`sign_in_error`].
//!
//! An [`account`] is one caller at one server (its [key](account_key)), which a leg asks for a bearer. If there is
//! none, for whatever [`reason`], [`flows`] start a [`flow`], which a person finishes: how it [begins](begin), as
//! which [client](registration), which is [given up](given_up) now and then, for which scopes ([`step_ups`]), with
//! which [`prompts`] and which [start page](start_page), and when it is not tried again ([`failures`]). The
//! [`delivery`] of the authorization server's answer ends it, or what a [client provides itself](client_driven);
//! flows are stored in the [`flow_store`]. Processes of one person share one ([`loopback`]). [Signing
//! out](sign_out) ends a grant. [`crate::login`] does the same without a gateway.

mod account;
mod account_key;
mod auth_server;
mod auth_server_error;
mod auth_servers;
mod bearer;
mod begin;
mod challenge;
mod client_driven;
mod delivery;
mod discovery;
mod failures;
mod flow;
mod flow_store;
mod flows;
mod given_up;
mod grant;
mod grants;
mod loopback;
mod prompts;
mod reason;
mod registration;
mod secret;
mod sign_in_error;
mod sign_out;
mod start_page;
mod step_ups;
mod trust;
mod vault;

pub(crate) use self::account::{Account, Verdict};
pub(crate) use self::auth_server::ProbeOutcome;
pub(crate) use self::auth_server_error::AuthServerError;
pub(crate) use self::auth_servers::AuthServers;
pub(crate) use self::bearer::Bearer;
pub(crate) use self::challenge::Challenge;
pub(crate) use self::client_driven::ClientTokens;
pub(crate) use self::delivery::{Delivery, DeliveryError, DeliveryRoute};
pub(crate) use self::flow::{
    Authorization, AwaitedInput, Flow, FlowId, FlowOutcome, LoopbackAddress,
};
pub(crate) use self::flow_store::{FlowStore, FlowStoreError};
pub(crate) use self::flows::{Flows, Home, Loopback};
pub(crate) use self::grant::Grant;
pub(crate) use self::grants::{GrantError, Grants};
pub(crate) use self::prompts::{Prompt, Useless};
pub(crate) use self::reason::SignInReason;
pub(crate) use self::secret::Secret;
pub(crate) use self::sign_in_error::{SignInError, in_brackets};
pub use self::sign_out::SignOutOutcome;
pub(crate) use self::trust::hosts_elsewhere;
pub(crate) use self::vault::{
    File as FileVault, Memory as MemoryVault, Shared as SharedVault, Vault,
};
