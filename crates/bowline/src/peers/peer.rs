//! One other gateway, and the connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_egress::{EgressError, Head, Origin, Pool, Request, Sent, Tls, UpstreamBody};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use tokio::time::Instant;

use super::answer::Answer;
use super::error::PeerError;
use super::label::{Forward, ForwardKind, Label};
use super::secret::PeerSecret;
use crate::owners::UntilGone;

/// Where forwards go.
pub(crate) const PATH: &str = "/forward";
pub(crate) const MEDIA: &str = "application/octet-stream";

/// How long a peer may take to accept a connection, and to answer a greeting.
const PATIENCE: Duration = Duration::from_secs(2);

/// Another gateway.
#[derive(Debug)]
pub(super) struct Peer {
    id: Box<str>,
    address: Box<str>,
    pool: Pool,
    host: HeaderValue,
    /// How many forwards it was sent.
    count: AtomicU64,
}

/// A forward as it is sent.
struct SealedForward {
    request: Request,
    label: Bytes,
}

impl Peer {
    pub(super) fn new(id: &str, address: &str, tls: &Tls) -> Self {
        let url = format!("http://{address}/").parse::<Uri>();
        let url = url.unwrap_or_default();
        Self {
            id: id.into(),
            address: address.into(),
            pool: Pool::new(Origin::of(&url), tls.clone()),
            host: HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("peer")),
            count: AtomicU64::new(0),
        }
    }

    pub(super) fn is_at(&self, address: &str) -> bool {
        &*self.address == address
    }

    pub(super) fn close_idle(&self) {
        self.pool.close_idle();
    }

    /// Sends a forward on a connection on which the peer has shown that it knows the secret, and is who it was: a
    /// gateway that was started again has another name, at the same address.
    pub(super) async fn send(
        &self,
        me: &str,
        secret: &Arc<PeerSecret>,
        forward: &Forward,
        sent: Sent,
        mut gone: UntilGone,
    ) -> Result<Answer, PeerError> {
        let (began, again) = (sent.clone(), gone.clone());
        let sealed = self.seal(me, secret, forward, sent)?;
        let sending = async {
            let until = Instant::now() + PATIENCE;
            loop {
                if let Some(answered) = self.pool.send_on_kept(&sealed.request).await {
                    return self.answered(answered, secret, sealed, again);
                }
                let greeting = self.greet(me, secret, again.clone());
                let greeted = tokio::time::timeout_at(until, greeting).await;
                greeted.map_err(|_| PeerError::Silent(PATIENCE))??;
            }
        };
        tokio::select! {
            answer = sending => answer,
            () = &mut gone => Err(PeerError::Gone { was_sent: began.get() }),
        }
    }

    async fn greet(
        &self,
        me: &str,
        secret: &Arc<PeerSecret>,
        gone: UntilGone,
    ) -> Result<(), PeerError> {
        let greeting = Forward::new(ForwardKind::Greeting, &(), &Bytes::new());
        let answered = async {
            let sealed = self.seal(me, secret, &greeting, Sent::default())?;
            let answered = self.pool.send_on_trial(&sealed.request, PATIENCE).await;
            let mut answer = self.answered(answered, secret, sealed, gone)?;
            answer.accepted().await?;
            answer.done().await?;
            answer.keep_connection();
            Ok(())
        };
        match answered.await {
            Ok(()) => Ok(()),
            // Nothing else was sent, and nothing that matters ran.
            Err(PeerError::Broken(_)) => Err(PeerError::Stranger(self.address.clone())),
            Err(error) => Err(error),
        }
    }

    fn seal(
        &self,
        me: &str,
        secret: &PeerSecret,
        forward: &Forward,
        sent: Sent,
    ) -> Result<SealedForward, PeerError> {
        let label = Label {
            to: self.id.clone(),
            from: me.into(),
            number: self.count.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let label = label.to_bytes();
        let sealed = secret.seal_forward(&label, &forward.to_bytes());
        let sealed = sealed.ok_or(PeerError::Unsure("this gateway has no random bytes".into()))?;
        let mut head = Head::new(&Method::POST, &PathAndQuery::from_static(PATH));
        head.add(&HOST, &self.host);
        head.add(&CONTENT_TYPE, &HeaderValue::from_static(MEDIA));
        Ok(SealedForward {
            request: head.with([&label[..], &sealed].concat().into(), sent),
            label: label.into(),
        })
    }

    fn answered(
        &self,
        answered: Result<Response<UpstreamBody>, EgressError>,
        secret: &Arc<PeerSecret>,
        forward: SealedForward,
        gone: UntilGone,
    ) -> Result<Answer, PeerError> {
        let response = match answered {
            Ok(response) => response,
            Err(error) if error.may_have_run() => {
                return Err(PeerError::Broken(error.to_string().into()));
            }
            Err(error) => return Err(PeerError::Unreachable(error)),
        };
        if response.status() != StatusCode::OK {
            // Anybody could say so, so it proves nothing.
            let status = response.status();
            return Err(PeerError::Broken(format!("it answered {status}").into()));
        }
        let (body, secret) = (response.into_body(), Arc::clone(secret));
        Ok(Answer::new(body, secret, forward.label, gone))
    }
}
