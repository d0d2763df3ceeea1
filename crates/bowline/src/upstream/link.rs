//! What ties a message to an upstream's session, whatever the transport.

use bowline_wire::version::Agreed;

use super::{Carried, Conversation, Endpoint};
use crate::oauth::{Account, Bearer};

/// What ties a request to an upstream's session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) conversation: &'a Conversation,
    pub(crate) version: Option<&'a Agreed>,
    /// What of the client's request goes along.
    pub(crate) carried: &'a Carried,
    /// The caller, where the server wants its callers signed in.
    pub(crate) account: Option<&'a Account>,
    /// The number of the sign-in that the session and the cookies belong to, if there are any: nothing of
    /// another sign-in goes along with them.
    pub(crate) sign_in: Option<u64>,
    pub(crate) repeat: Repeat,
}

/// Whether a message may be sent again although it may have run, where a redirect leads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Unsafe,
}

// === impl Link ===

impl Link<'_> {
    /// The same for a message that may run twice.
    pub(crate) fn safe(self) -> Self {
        Self {
            repeat: Repeat::Safe,
            ..self
        }
    }

    /// Whether what the request is to carry is of another sign-in, and so maybe of another account, than
    /// what it is tied to.
    pub(super) fn is_anothers(&self, bearer: Option<&Bearer>) -> bool {
        self.sign_in.is_some_and(|own| match bearer {
            Some(bearer) => bearer.sign_in != own,
            // A server that asks for a token once would serve whoever has signed out since.
            None => self.account.is_some() && own != 0,
        })
    }
}
