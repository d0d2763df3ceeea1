//! With whose credentials a server's session was opened. It goes on with no others: a server may check them only
//! once, and the operator may exchange one kind for the other, or take a token away.

use crate::config::Server;
use crate::oauth::{Account, Bearer};

/// With whose credentials a server's session, and its cookies, came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Without any.
    Nobody,
    /// With a token that the operator configured.
    Operator,
    /// Where callers sign in: with the token of the caller's sign-in with this number; 0 for a caller who had not
    /// signed in.
    Caller { sign_in: u64 },
}

impl Credentials {
    /// Those of a session that was opened just now, for this account if callers sign in. `has_token`: the operator
    /// had configured a token.
    pub(crate) fn of_opening(account: Option<&Account>, has_token: bool) -> Self {
        match account {
            Some(account) => Self::Caller {
                sign_in: account.sent(),
            },
            None if has_token => Self::Operator,
            None => Self::Nobody,
        }
    }

    /// The number of the sign-in that the session belongs to; 0 for none.
    pub(crate) fn sign_in(self) -> u64 {
        match self {
            Self::Caller { sign_in } => sign_in,
            Self::Nobody | Self::Operator => 0,
        }
    }

    /// Whether the server, as it is configured now, has credentials of this kind.
    pub(crate) fn continue_at(self, server: &Server) -> bool {
        match self {
            Self::Nobody => server.oauth.is_none(),
            Self::Operator => server.oauth.is_none() && server.sets_token(),
            Self::Caller { .. } => server.oauth.is_some(),
        }
    }

    /// Whether a request of the session may carry this token of its caller, or none.
    pub(super) fn continue_with(self, bearer: Option<&Bearer>) -> bool {
        match (self, bearer) {
            // A token of another sign-in may be another account's. Without any, a caller who has signed out would
            // still be served.
            (Self::Caller { sign_in }, bearer) => {
                bearer.map_or(0, |bearer| bearer.sign_in) == sign_in
            }
            (Self::Nobody | Self::Operator, bearer) => bearer.is_none(),
        }
    }
}
