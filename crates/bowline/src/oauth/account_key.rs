//! The key of an account: one caller at one server.

/// Which account a grant or a flow belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    /// The caller's identity.
    pub(super) caller: Box<str>,
    pub(super) server_url: Box<str>,
}
