//! The refusal of a stream.

use http::StatusCode;

/// The status with which a stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotListened(pub(crate) StatusCode);

impl NotListened {
    /// Whether the server believes that the previous stream is still open.
    pub(crate) fn is_conflict(self) -> bool {
        self.0 == StatusCode::CONFLICT
    }

    /// Whether the server failed, rather than refused.
    pub(crate) fn is_failure(self) -> bool {
        self.0.is_server_error()
    }

    /// Whether a GET that was refused with this status may succeed later.
    pub(crate) fn may_pass(self) -> bool {
        self.0.is_client_error() && !self.is_conflict()
    }

    /// Whether the server says, or seems to say, that it has no such streams. `opens_streams`: it
    /// has opened one before, so it has a route for GET.
    pub(crate) fn has_none(self, opens_streams: bool) -> bool {
        // A server without a route for GET answers 404, like one that lost the session.
        let is_refused = self.0.is_success() || self.may_pass();
        self.0 == StatusCode::METHOD_NOT_ALLOWED || is_refused && !opens_streams
    }
}
