//! Bowline as the OAuth client of the servers behind it: what a caller was granted there, where that
//! lies, and how it is kept fresh.
//!
//! A [`grant`] is what a sign-in leaves behind; the [`vault`] is where grants lie.

#![cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "nobody signs in yet; the tests do"
    )
)]

pub(crate) mod grant;
pub(crate) mod secret;
pub(crate) mod vault;
