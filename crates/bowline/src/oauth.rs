//! Bowline as the OAuth client of the servers behind it: what they demand, what a caller was granted
//! there, where that lies, and how it is kept fresh.
//!
//! A [`challenge`] says what a server demands; [`discovery`] finds who grants it; the [`authority`]
//! there registers Bowline and hands out tokens. A [`grant`] is what a sign-in leaves behind; the
//! [`vault`] is where grants lie; [`grants`] are those that this gateway uses. An [`account`] is one
//! caller at one server, which a leg asks for a bearer; where there is none, [`sign_ins`] begin a
//! [`flow`] that a person finishes: what it [begins with](first_step), who was [`asked`], and what a
//! client [`handed`] over itself have files of their own. [`crate::sign_in`] does the same without a
//! gateway.

mod account;
mod asked;
mod authorities;
mod authority;
mod bearer;
mod challenge;
mod discovery;
mod first_step;
mod flow;
mod grant;
mod grants;
mod handed;
mod pending;
mod secret;
mod sign_ins;
mod vault;

pub(crate) use self::account::{Account, Verdict, Wanted};
pub(crate) use self::asked::Asking;
pub(crate) use self::authorities::Authorities;
pub(crate) use self::authority::{AuthorityError, Probed, TokenKind};
pub(crate) use self::bearer::Bearer;
pub(crate) use self::challenge::Challenge;
pub(crate) use self::flow::{Asks, End, Flow, FlowId};
pub(crate) use self::grant::Grant;
pub(crate) use self::grants::{GrantError, Grants};
pub(crate) use self::handed::HandedTokens;
pub(crate) use self::pending::Pending;
pub(crate) use self::secret::Secret;
pub(crate) use self::sign_ins::{Delivery, NotDelivered, SignInError, SignIns, Via};
pub(crate) use self::vault::{
    File as FileVault, Memory as MemoryVault, Shared as SharedVault, Vault,
};
