//! Posting a message to the URL of a pair, and what the answer to the POST means. The answer to a call comes on the
//! stream.

use std::sync::Arc;

use bowline_egress::{CookieUrl, Sent};
use bowline_wire::media;
use bowline_wire::message::Message;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tokio::sync::Notify;

use super::Pair;
use crate::config::Server;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::budget::moment;
#[cfg(feature = "planted")]
use crate::upstream::error::Declined;
use crate::upstream::link::HttpLink;
use crate::upstream::live::{Incoming, LiveError, Recipient};
use crate::upstream::streamable::aside::Aside;
use crate::upstream::streamable::{Asking, refusal};
use crate::upstream::{Answer, Ran, SessionState, Upstream, UpstreamError, Whole};

/// A message to a pair.
pub(super) struct Posting<'a> {
    pub(super) pair: &'a Pair,
    pub(super) message: Bytes,
    pub(super) sent: Sent,
    /// Notified when any byte of it was written.
    pub(super) begun: Arc<Notify>,
    /// The call that it makes.
    pub(super) call: Option<Recipient>,
    /// It opens the session.
    pub(super) opens: bool,
}

// === impl Upstream ===

impl Upstream {
    /// Posts a request, until the server has taken it or its stream says something. `Some` is the server's own error,
    /// as the answer to the POST.
    pub(super) async fn call(
        &self,
        link: HttpLink<'_>,
        pair: &Pair,
        request: &Message,
        sent: Sent,
        incoming: &Incoming,
    ) -> Result<Option<Whole>, UpstreamError> {
        let (server, written) = (self.config(), sent.clone());
        let begun = Arc::<Notify>::default();
        let posting = Posting {
            pair,
            message: request.raw().clone(),
            sent,
            begun: Arc::clone(&begun),
            call: Some(incoming.recipient()),
            opens: false,
        };
        let mut taking = Box::pin(async {
            let answer = self.post_to(link, &server, posting).await?;
            taken(answer, request, &server).await
        });
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            () = incoming.begun() => match incoming.has_ended() {
                // A question, or another's message, may come before the request is written. Whoever does not wait
                // for that takes the request back.
                false => tokio::select! {
                    biased;
                    taken = taking => taken,
                    () = begun.notified() => return Ok(None),
                },
                // The answer to the POST may still say that the message did not run.
                true => match tokio::time::timeout(moment(&server), taking).await {
                    Ok(taken) => taken,
                    Err(_) if written.get() => Ok(None),
                    Err(_) => Err(UpstreamError::SessionLost),
                },
            },
        };
        taken.map_err(|error| pair.seen_with(error))
    }

    /// Posts one message.
    pub(super) async fn post_to(
        &self,
        link: HttpLink<'_>,
        server: &Server,
        posting: Posting<'_>,
    ) -> Result<Answer, UpstreamError> {
        let Posting {
            pair,
            message,
            sent,
            begun,
            call,
            opens,
        } = posting;
        let url = CookieUrl {
            https: link.url.origin.https,
            host: link.url.origin.host(),
            path: pair.message_url().path(),
        };
        for cookies in pair.late().take() {
            link.http.jar.lock().store(&cookies, url);
        }
        let asking = Asking {
            method: Method::POST,
            accept: Some(HeaderValue::from_static(media::BOTH)),
            last_event_id: None,
            message: Some((message, sent.clone())),
            landed: None,
            aside: Some(Aside {
                tasks: self.channels.tasks(),
                closing: pair.closing(),
                channels: (!opens).then_some(&self.channels),
                is_replaced: pair.replaced(),
                late: pair.late(),
                sent,
                begun,
                call,
            }),
        };
        Box::pin(self.send(link.to(pair), server, &asking)).await
    }
}

/// Whether the message URL is gone, and the session with it.
pub(super) fn is_gone(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

// === impl Pair ===

impl Pair {
    /// A failure of a POST, with what the stream says: if that has ended, the session is lost whatever the POST
    /// proves.
    pub(super) fn seen_with(&self, error: UpstreamError) -> UpstreamError {
        let proof = error.proof();
        let is_open =
            proof.session == SessionState::Unproven || matches!(error, UpstreamError::Declined(_));
        match self.routing().ended() {
            Some(end) if is_open => UpstreamError::Live(LiveError::Ended {
                end,
                was_written: proof.ran != Ran::No,
            }),
            _ => error,
        }
    }
}

/// What the answer to the POST of a request says: nothing, or the answer itself.
async fn taken(
    answer: Answer,
    request: &Message,
    server: &Server,
) -> Result<Option<Whole>, UpstreamError> {
    match answer.status {
        #[cfg(feature = "planted")]
        status if is_gone(&answer) && planted::has(Bug::MessageUrl404Passes) => {
            Err(UpstreamError::Declined(Box::new(Declined {
                status,
                may_deny_session: false,
                retry_after: None,
                body: None,
            })))
        }
        _ if is_gone(&answer) => Err(UpstreamError::SessionLost),
        status if status.is_success() => {
            answer.read_out().await;
            Ok(None)
        }
        _ => {
            let judging = refusal::judge(answer, request, &server.recovery);
            Box::pin(judging).await.map(Some)
        }
    }
}
