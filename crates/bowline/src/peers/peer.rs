//! One other gateway, and the connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline_egress::{Head, Origin, Pool, Sent, Tls};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode, Uri};

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
    /// It has answered a greeting.
    is_proven: AtomicBool,
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
            is_proven: AtomicBool::new(false),
        }
    }

    pub(super) fn is_at(&self, address: &str) -> bool {
        &*self.address == address
    }

    pub(super) fn close_idle(&self) {
        self.pool.close_idle();
    }

    /// Sends a forward, once the peer has shown that it knows the secret.
    pub(super) async fn send(
        &self,
        me: &str,
        secret: &Arc<PeerSecret>,
        forward: &Forward,
        sent: Sent,
        mut gone: UntilGone,
    ) -> Result<Answer, PeerError> {
        if !self.is_proven.load(Ordering::Acquire) {
            let greeting = self.greet(me, secret, gone.clone());
            let greeted = tokio::time::timeout(PATIENCE, greeting).await;
            greeted.map_err(|_| PeerError::Silent(PATIENCE))??;
            self.is_proven.store(true, Ordering::Release);
        }
        let began = sent.clone();
        let again = gone.clone();
        tokio::select! {
            answer = self.post(me, secret, forward, sent, again) => answer,
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
            let mut answer = self
                .post(me, secret, &greeting, Sent::default(), gone)
                .await?;
            answer.accepted().await?;
            answer.done().await
        };
        match answered.await {
            Ok(()) => Ok(()),
            // Nothing else was sent, and nothing that matters ran.
            Err(PeerError::Broken(_)) => Err(PeerError::Stranger(self.address.clone())),
            Err(error) => Err(error),
        }
    }

    async fn post(
        &self,
        me: &str,
        secret: &Arc<PeerSecret>,
        forward: &Forward,
        sent: Sent,
        gone: UntilGone,
    ) -> Result<Answer, PeerError> {
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
        let request = head.with([&label[..], &sealed].concat().into(), sent);
        let response = match self.pool.send(&request, PATIENCE).await {
            Ok(response) => response,
            Err(error) if error.may_have_run() => {
                return Err(PeerError::Broken(error.to_string().into()));
            }
            Err(error) => return Err(PeerError::Unreachable(error)),
        };
        if response.status() != StatusCode::OK {
            // Anybody could say so, so it proves nothing.
            self.is_proven.store(false, Ordering::Release);
            let status = response.status();
            return Err(PeerError::Broken(format!("it answered {status}").into()));
        }
        let secret = Arc::clone(secret);
        Ok(Answer::new(
            response.into_body(),
            secret,
            label.into(),
            gone,
        ))
    }
}
