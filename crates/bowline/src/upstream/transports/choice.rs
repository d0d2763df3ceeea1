//! Which transport a server at a URL speaks. `transport = "auto"` tries streamable HTTP, and HTTP+SSE if the server says
//! that it does not know that. What an endpoint spoke is remembered for a while: it is tried first there. The other is
//! tried whenever that fails, because replicas differ while a server is upgraded, or rolled back.

use bowline_egress::Sent;
use bowline_wire::message::Message;
use bytes::Bytes;
use http::StatusCode;

use super::error::{SseError, UpstreamError};
use super::link::HttpLink;
use super::opening::{Declination, Initialized};
use crate::caller::Caller;
use crate::config::Transport;
use crate::upstream::Upstream;
use crate::upstream::endpoints::{Endpoint, Spoken};

// === impl Upstream ===

impl Upstream {
    /// Sends an `initialize` over the transport that is configured or was found out.
    pub(super) async fn open_by_url(
        &self,
        link: HttpLink<'_>,
        caller: &Caller,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        match self.config().transport {
            Transport::StreamableHttp => self.http_initialize(link, message, sent).await,
            Transport::Sse => Box::pin(self.sse_initialize(link, caller, message, sent)).await,
            Transport::Auto => Box::pin(self.find_out(link, caller, message, sent)).await,
        }
    }

    /// It was found out that the server speaks HTTP+SSE.
    pub(crate) fn note_sse(&self) {
        for endpoint in self.endpoints.all().iter() {
            endpoint.spoken.note(Spoken::Sse);
        }
    }

    async fn find_out(
        &self,
        link: HttpLink<'_>,
        caller: &Caller,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        let last = &link.endpoint.spoken;
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::FirstTransportIsFinal) {
            match last.get() {
                Some(Spoken::StreamableHttp) => {
                    return self.http_initialize(link, message, sent).await;
                }
                Some(Spoken::Sse) => {
                    return self.sse_initialize(link, caller, message, sent).await;
                }
                None => {}
            }
        }
        let mut over_sse = None;
        if last.get() == Some(Spoken::Sse) {
            let opening = self.sse_initialize(link, caller, message.clone(), sent.clone());
            let opened = opening.await;
            if !is_wrong_over_sse(&opened) {
                return opened;
            }
            over_sse = Some(opened);
        }
        let opened = self
            .http_initialize(link, message.clone(), sent.clone())
            .await?;
        let declined = match opened {
            Initialized::Answered { .. } => {
                last.note(Spoken::StreamableHttp);
                return Ok(opened);
            }
            Initialized::Declined(declined) if is_wrong_transport(declined.status()) => {
                declined.held().await
            }
            other @ Initialized::Declined(_) => return Ok(other),
        };
        if declined.answers(&message) {
            return Ok(Initialized::Declined(declined));
        }
        let opened = match over_sse {
            Some(opened) => opened,
            None => self.sse_initialize(link, caller, message, sent).await,
        };
        self.over_sse(link.endpoint, opened, declined)
    }

    /// What the attempt over HTTP+SSE means, where streamable HTTP was declined.
    fn over_sse(
        &self,
        endpoint: &Endpoint,
        opened: Result<Initialized, UpstreamError>,
        declined: Declination,
    ) -> Result<Initialized, UpstreamError> {
        let failure = match opened {
            Ok(opened @ Initialized::Answered { .. }) => {
                tracing::info!(server = %self.name, "it speaks HTTP+SSE (2024-11-05)");
                endpoint.spoken.note(Spoken::Sse);
                return Ok(opened);
            }
            // It opened a stream, which streamable HTTP has not.
            Err(error) if error.is_stray() => {
                endpoint.spoken.note(Spoken::Sse);
                return Err(error);
            }
            Ok(Initialized::Declined(other)) => other.error(),
            Err(UpstreamError::Refused(status)) => {
                return Err(UpstreamError::RefusedOverSse(status, declined.status()));
            }
            // What is missing is a sign-in or a token, or the server itself.
            Err(
                error @ (UpstreamError::SignIn(_)
                | UpstreamError::Grant(_)
                | UpstreamError::SessionLost
                | UpstreamError::NoAnswer(_)
                | UpstreamError::Unavailable(_)),
            ) => {
                let status = declined.status();
                tracing::info!(server = %self.name, streamable = %status, sse = %error, "no session over either transport yet");
                return Err(error);
            }
            Err(error) => error,
        };
        self.neither(declined, &failure)
    }

    /// Both attempts failed. What the server said in JSON-RPC is for the client.
    fn neither(
        &self,
        declined: Declination,
        failure: &UpstreamError,
    ) -> Result<Initialized, UpstreamError> {
        let status = declined.status();
        tracing::warn!(server = %self.name, streamable = %status, sse = %failure, "neither transport could be opened");
        match declined.json().is_some_and(is_json_rpc) {
            true => Ok(Initialized::Declined(declined)),
            false => {
                let failure = failure.to_string().into();
                Err(UpstreamError::NeitherTransport(status, failure))
            }
        }
    }
}

/// Whether an answer to `initialize` may mean that the server does not speak streamable HTTP.
pub(crate) fn is_wrong_transport(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    )
}

/// Whether an attempt over HTTP+SSE may have failed because the server does not speak that: it declined, or what it sent
/// is no stream of that transport. A server of streamable HTTP may also answer a GET with a stream.
fn is_wrong_over_sse(opened: &Result<Initialized, UpstreamError>) -> bool {
    match opened {
        Ok(Initialized::Declined(declined)) => declined.status().is_client_error(),
        Err(UpstreamError::HttpSse(error)) => match error {
            SseError::NotAStream(_)
            | SseError::NoEndpoint(_)
            | SseError::EndedEarly(_)
            | SseError::BadEndpoint
            | SseError::OtherOrigin(_) => true,
            SseError::TooMany(_) | SseError::Stray(_) => false,
        },
        Ok(Initialized::Answered { .. }) | Err(_) => false,
    }
}

fn is_json_rpc(body: &Bytes) -> bool {
    Message::parse(body.clone()).is_ok()
}
