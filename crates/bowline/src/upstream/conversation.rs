//! What an upstream knows a leg by: the part of a leg that its transport owns.

use bowline_wire::id::UpstreamSessionId;
use parking_lot::Mutex;

use bowline_egress::Jar;

/// What an upstream knows a leg by.
#[derive(Debug)]
pub(crate) enum Conversation {
    StreamableHttp(HttpConversation),
}

/// The session id that a server issued, and the cookies that lead to it.
#[derive(Debug)]
pub(crate) struct HttpConversation {
    pub(crate) session_id: Option<UpstreamSessionId>,
    pub(crate) jar: Mutex<Jar>,
}

impl Conversation {
    /// A conversation over HTTP.
    pub(crate) fn http(session_id: Option<UpstreamSessionId>, jar: Jar) -> Self {
        Self::StreamableHttp(HttpConversation {
            session_id,
            jar: Mutex::new(jar),
        })
    }

    /// The same, now that the upstream has issued this id.
    pub(crate) fn issued(self, session_id: Option<UpstreamSessionId>) -> Self {
        let Self::StreamableHttp(http) = self;
        Self::StreamableHttp(HttpConversation { session_id, ..http })
    }

    /// The part that HTTP owns.
    pub(crate) fn as_http(&self) -> &HttpConversation {
        let Self::StreamableHttp(http) = self;
        http
    }

    /// The session id that the upstream issued, if it did.
    pub(crate) fn session_id(&self) -> Option<&UpstreamSessionId> {
        match self {
            Self::StreamableHttp(http) => http.session_id.as_ref(),
        }
    }

    /// The cookies.
    pub(crate) fn jar(&self) -> &Mutex<Jar> {
        match self {
            Self::StreamableHttp(http) => &http.jar,
        }
    }

    /// The same conversation, for those who must not hold the leg.
    pub(crate) fn twin(&self) -> Self {
        match self {
            Self::StreamableHttp(http) => {
                Self::http(http.session_id.clone(), http.jar.lock().clone())
            }
        }
    }
}
