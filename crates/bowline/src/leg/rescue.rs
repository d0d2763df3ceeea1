//! Streams that break: gone on with where they broke, or told honestly.

use std::sync::{Arc, Weak};

use bowline_wire::message::Message;
use bytes::Bytes;
use http::HeaderValue;

use super::again::Again;
use super::listen::{listen, open};
use super::relay::{Relay, StreamError};
use super::send::{Reply, request_again};
use super::{Leg, LegRef};
use crate::body::Sent;
use crate::session::{Born, Call, Opening, Session, Source};
use crate::upstream::{Carried, UpstreamError};

/// How to go on with a stream.
#[derive(Debug)]
pub(crate) struct Rescue {
    /// Weak: the stream belongs to the session.
    session: Weak<Session>,
    carried: Carried,
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Standalone,
    Request {
        message: Message,
        leg: Arc<Leg>,
        /// A cancel is known here also while the answer streams.
        call: Arc<Call>,
    },
}

/// Where a stream broke.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The generation that it was read from.
    pub(crate) at: LegRef,
    /// The server's last event id.
    pub(crate) last: Option<Bytes>,
    /// How far its request said it had got.
    pub(crate) progress: Option<f64>,
}

impl Rescue {
    /// For the stream of a GET.
    pub(crate) fn standalone(session: &Arc<Session>, carried: Carried) -> Self {
        Self {
            session: Arc::downgrade(session),
            carried,
            stream: Stream::Standalone,
        }
    }

    /// For the stream that answers a request.
    pub(super) fn request(
        session: &Arc<Session>,
        leg: &Arc<Leg>,
        (message, call): (&Message, &Arc<Call>),
        carried: &Carried,
    ) -> Self {
        Self {
            session: Arc::downgrade(session),
            carried: carried.clone(),
            stream: Stream::Request {
                message: message.clone(),
                leg: Arc::clone(leg),
                call: Arc::clone(call),
            },
        }
    }

    pub(crate) fn is_standalone(&self) -> bool {
        matches!(self.stream, Stream::Standalone)
    }

    /// What Bowline itself has to tell the client, on the stream that is for it.
    pub(crate) fn news(&self) -> Option<Bytes> {
        match self.stream {
            Stream::Standalone => {
                let session = self.session.upgrade()?;
                let untold = session.questions.take_untold();
                untold.or_else(|| session.take_news())
            }
            Stream::Request { .. } => None,
        }
    }

    /// The stream opened anew; `None` if its session is gone.
    pub(crate) fn begin(&self, broken: Option<Broken>) -> Option<Opening> {
        let (session, carried) = (self.session.upgrade()?, self.carried.clone());
        let current = session.leg();
        let progress = broken.as_ref().and_then(|broken| broken.progress);
        let broke_at = broken.as_ref().map(|broken| broken.at);
        let last = broken.and_then(|broken| {
            let last = HeaderValue::from_bytes(&broken.last?).ok()?;
            // An event id means something to the generation that issued it, and to no other.
            (current.at == broken.at).then_some(last)
        });
        Some(match &self.stream {
            Stream::Standalone => Box::pin(go_on(session, Born::Standalone, last, carried)),
            Stream::Request { message, leg, call } => {
                let leg = if broke_at == Some(current.at) {
                    current
                } else {
                    Arc::clone(leg)
                };
                let going_on = go_on_with_request(
                    session,
                    leg,
                    (message.clone(), Arc::clone(call)),
                    last,
                    carried,
                );
                Box::pin(async move { Ok(going_on.await?.beyond(progress)) })
            }
        })
    }
}

async fn go_on(
    session: Arc<Session>,
    born: Born,
    last: Option<HeaderValue>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let source = listen(session, born, last.clone(), carried).await?;
    Ok(source.after(last))
}

/// Resumes the answer to a request; if that cannot be, the request goes again if it may, and
/// otherwise the client hears that nobody knows.
async fn go_on_with_request(
    session: Arc<Session>,
    leg: Arc<Leg>,
    (message, call): (Message, Arc<Call>),
    last: Option<HeaderValue>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let id: Box<str> = message.id().unwrap_or_default().into();
    if let Some(last) = last {
        let born = Born::Request(id.clone());
        let resumed = open(&session, &leg, &born, Some(&last), &carried).await;
        if let Ok(source @ Source::Relay(_)) = resumed {
            return Ok(source.after(Some(last)));
        }
    }
    let cut = UpstreamError::Stream(StreamError::Cut);
    let mended = Again::default()
        .after(
            &session,
            &leg,
            &message,
            (&call, &Sent::default()),
            &carried,
            cut,
        )
        .await;
    let replied = match mended {
        Ok(mended) => request_again(&session, &leg, mended, (message, call), &carried).await,
        Err(error) => Err(error),
    };
    Ok(match replied {
        Ok(Reply::Stream { relay, .. }) if matches!(relay, Relay::Events(_)) => {
            Source::Relay(relay)
        }
        Ok(Reply::Whole { body, .. }) => Source::Last(event(&body)),
        Ok(_) => Source::Ended,
        Err(error) => Source::Last(event(session.leg().fault(error).body(Some(&id)).as_bytes())),
    })
}

/// A message as an event; JSON has no line that could not stand in one.
fn event(message: &[u8]) -> Bytes {
    let mut event = b"event: message\n".to_vec();
    for line in message.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.push(b'\n');
    }
    event.push(b'\n');
    event.into()
}
