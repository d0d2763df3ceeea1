//! Bowline as the OAuth client of the servers behind it: what a caller was granted there, where that
//! lies, and how it is kept fresh.
//!
//! A [`grant`] is what a sign-in leaves behind; the [`vault`] is where grants lie; [`grants`] are
//! those that this gateway uses.

#![cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "no leg asks for a bearer yet; the tests do"
    )
)]

pub(crate) mod bearer;
pub(crate) mod grant;
pub(crate) mod grants;
pub(crate) mod secret;
pub(crate) mod vault;
