//! Reading the body of an answer as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_egress::{UpstreamBody, WireError};
use bytes::Bytes;
use http_body::Body as _;

/// The next bytes of a body. Trailers are ignored.
pub(crate) fn poll_data(
    body: &mut UpstreamBody,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, WireError>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
