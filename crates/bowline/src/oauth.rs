//! Bowline as the OAuth client of the servers behind it: what they demand, what a caller was granted
//! there, where that lies, and how it is kept fresh.
//!
//! A [`challenge`] says what a server demands; [`discovery`] finds who grants it; the [`authority`]
//! there registers Bowline and hands out tokens, if the operator's [`trust`] allows it. A [`grant`] is
//! what a sign-in leaves behind; the
//! [`vault`] is where grants lie; [`grants`] are those that this gateway uses. An [`account`] is one
//! caller at one server, which a leg asks for a bearer; where there is none, [`sign_ins`] begin a
//! [`flow`] that a person finishes: how it [begins](beginning), with [what](first_step), who was [`asked`], the
//! [`delivery`] of what came of it, and what a client [`handed`] over itself have files of their own; so has
//! [signing out](sign_out). [`crate::sign_in`] does the same without a
//! gateway.

mod account;
mod asked;
mod authorities;
mod authority;
mod bearer;
mod beginning;
mod challenge;
mod delivery;
mod discovery;
mod first_step;
mod flow;
mod grant;
mod grants;
mod handed;
mod identity;
mod pending;
mod secret;
mod sign_ins;
mod sign_out;
mod trust;
mod vault;

pub(crate) use self::account::{Account, Verdict, Wanted};
pub(crate) use self::asked::Asking;
pub(crate) use self::authorities::Authorities;
pub(crate) use self::authority::{AuthorityError, Probed};
pub(crate) use self::bearer::Bearer;
pub(crate) use self::challenge::Challenge;
pub(crate) use self::delivery::{Delivery, NotDelivered, Via};
pub(crate) use self::flow::{Asks, Authorization, End, Flow, FlowId};
pub(crate) use self::grant::Grant;
pub(crate) use self::grants::{GrantError, Grants};
pub(crate) use self::handed::HandedTokens;
pub(crate) use self::identity::{Identities, identity_of, name_of};
pub(crate) use self::pending::{Pending, PendingError};
pub(crate) use self::secret::Secret;
pub(crate) use self::sign_ins::{SignInError, SignIns};
pub(crate) use self::sign_out::Out;
pub(crate) use self::trust::hosts_elsewhere;
pub(crate) use self::vault::{
    File as FileVault, Memory as MemoryVault, Shared as SharedVault, Vault,
};
