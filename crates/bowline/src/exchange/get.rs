//! A client's GET: the stream of what its server sends on its own, or the rest of an earlier stream.

use std::sync::Arc;

use bowline_wire::message::RawIdBuf;
use bytes::Bytes;

use crate::exchange::Exchange;
use crate::exchange::listen::lost;
use crate::exchange::listening::listen;
use crate::exchange::outlet::Outlet;
use crate::exchange::reader::Reader;
use crate::exchange::rescue::Rescue;
use crate::exchange::stream::{LiveStream, Source};
use crate::fault::Fault;
use crate::leg::marks::StreamOrigin;
use crate::session::Session;
use crate::upstream::budget::moment;

/// What a client's `Last-Event-ID` refers to.
enum Resumed {
    /// A stream, after one of the server's own event ids.
    At(StreamOrigin, Option<Bytes>),
    /// The response to this request was lost with the generation that the request was sent to.
    Lost(RawIdBuf),
}

impl Exchange {
    /// Opens a stream to the client: the standalone stream or, after the event `last`, the rest of an earlier
    /// stream.
    pub(crate) async fn listen(self, last: Option<&[u8]>) -> Result<Outlet, Fault> {
        let session = Arc::clone(self.in_use.session());
        let place = session.stream_place().map_err(Fault::TooManyStreams)?;
        let opening = |origin: &StreamOrigin, last| {
            let (session, carried) = (Arc::clone(&session), self.carried.clone());
            Source::opening(listen(session, origin.clone(), last, carried))
        };
        let resumed = match last {
            None => Resumed::At(StreamOrigin::Standalone, None),
            Some(mark) => resumed(&session, mark).ok_or(Fault::LastEventId)?,
        };
        let (origin, source) = match resumed {
            Resumed::At(origin, last) => {
                let source = opening(&origin, last);
                (origin, source)
            }
            Resumed::Lost(id) => {
                let source = lost(&session.leg(), id.as_id());
                (StreamOrigin::Request(id), source)
            }
        };
        let rescue = (origin == StreamOrigin::Standalone)
            .then(|| Box::new(Rescue::standalone(&session, self.carried.clone())));
        // The older stream is closed first, so that the server sees only one at a time.
        let stream = Arc::new(LiveStream::new(source));
        let is_attached = match origin {
            StreamOrigin::Standalone => session.attach_listener(&stream).await,
            StreamOrigin::Request(_) => session.replace(origin, &stream),
        };
        if !is_attached {
            return Err(Fault::UnknownSession);
        }
        let reader = Reader::new(stream, self.in_use.clone(), Some(place), rescue);
        let mut outlet = Outlet::events(reader, self.departure());
        // Long enough to report a lost session with an HTTP status, short enough for servers that send no
        // headers before their first event.
        let grace = moment(&session.upstream.config());
        if let Ok(Err(error)) = tokio::time::timeout(grace, outlet.opened()).await {
            return Err(self.fail(error));
        }
        Ok(outlet)
    }
}

fn resumed(session: &Session, mark: &[u8]) -> Option<Resumed> {
    let mark = session.seal.open_event(mark)?;
    if mark.leg == session.leg().generation {
        // An event id that is not a valid header value cannot be sent to the server.
        if !mark
            .id
            .iter()
            .all(|byte| matches!(byte, b'\t' | 32..=126 | 128..))
        {
            return None;
        }
        return Some(Resumed::At(mark.origin, Some(mark.id.into_vec().into())));
    }
    Some(match mark.origin {
        StreamOrigin::Standalone => Resumed::At(StreamOrigin::Standalone, None),
        StreamOrigin::Request(id) => Resumed::Lost(id),
    })
}
