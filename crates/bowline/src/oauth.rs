//! Bowline as the OAuth client of the servers behind it: what they demand, what a caller was granted
//! there, where that lies, and how it is kept fresh.
//!
//! A [`challenge`] says what a server demands; [`discovery`] finds who grants it; the [`authority`]
//! there registers Bowline and hands out tokens. A [`grant`] is what a sign-in leaves behind; the
//! vault is where grants lie.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "nobody signs in yet; the tests do")
)]

pub(crate) mod authority;
pub(crate) mod challenge;
mod discovery;
pub(crate) mod grant;
pub(crate) mod secret;
