//! What must hold of any bytes that are read as an event stream: it does not matter how they were
//! cut, no byte is lost, and a rewritten event means what it should.
//!
//! The input is the number of cuts, a cap, a byte for each cut, and the stream.

use bowline_wire::sse::{Decoder, Event};
use bytes::Bytes;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Panics where the input shows a bug.
pub(crate) fn check(input: &[u8]) {
    let [cuts, cap, rest @ ..] = input else {
        return;
    };
    let Some((cuts, stream)) = rest.split_at_checked(usize::from(cuts % 8)) else {
        return;
    };
    let chunks = cut(stream, cuts);
    let whole = decode(&[stream]);
    let chunked = decode(&chunks);
    assert_eq!(meanings(&chunked), meanings(&whole), "cutting changed it");
    capped(&chunks, usize::from(*cap));
    whole.iter().for_each(rewrite);
    let message = Bytes::copy_from_slice(stream);
    let made = decode(&[b":\n\n", &Event::of_message(message).encoded()]);
    let data: Vec<u8> = stream
        .iter()
        .map(|byte| if *byte == b'\r' { b'\n' } else { *byte })
        .collect();
    assert_eq!(meanings(&made), [(None, Some(data))], "made of data");
}

fn cut<'a>(stream: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let place = |cut: &u8| usize::from(*cut) * (stream.len() + 1) / 256;
    let mut places: Vec<usize> = cuts.iter().map(place).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    let pieces = places.windows(2);
    pieces.map(|pair| &stream[pair[0]..pair[1]]).collect()
}

/// All whole events of a stream that comes in these chunks.
fn decode(chunks: &[&[u8]]) -> Vec<Event> {
    let mut decoder = Decoder::new(usize::MAX);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Ok(Some(event)) = decoder.next_event() {
            events.push(event);
        }
    }
    conserved(&events, chunks, decoder.is_between_events());
    events
}

/// What was handed out is the beginning of what went in, and the decoder knows whether it is all.
fn conserved(events: &[Event], chunks: &[&[u8]], all: bool) {
    let out: Vec<u8> = events
        .iter()
        .flat_map(|event| event.raw().to_vec())
        .collect();
    let stream = chunks.concat();
    let stream = stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&stream);
    assert!(stream.starts_with(&out), "bytes were changed");
    assert_eq!(out.len() == stream.len(), all);
}

/// No event is larger than the cap, and none is refused that is not.
fn capped(chunks: &[&[u8]], cap: usize) {
    let mut decoder = Decoder::new(cap);
    let mut out = 0;
    let mut pushed = 0;
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        pushed += chunk.len();
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => {
                    assert!(event.raw().len() <= cap);
                    out += event.raw().len();
                }
                Ok(None) => break,
                Err(too_large) => {
                    assert_eq!(too_large.max_event, cap);
                    assert!(pushed - out > cap, "nothing was too large");
                    return;
                }
            }
        }
        assert!(pushed - out <= cap, "more is kept than the cap allows");
    }
}

/// An event's id and data.
type Meaning = (Option<Vec<u8>>, Option<Vec<u8>>);

fn meaning(event: &Event) -> Meaning {
    (event.id().map(<[u8]>::to_vec), event.data().map(Vec::from))
}

/// What events mean to a client, apart from blocks that mean nothing.
fn meanings(events: &[Event]) -> Vec<Meaning> {
    let all = events.iter().map(meaning);
    all.filter(|meaning| *meaning != (None, None)).collect()
}

/// What an event means once it was written.
fn again(event: &Event) -> Vec<Meaning> {
    meanings(&decode(&[b":\n\n", &event.encoded()]))
}

fn rewrite(event: &Event) {
    let (id, data) = meaning(event);
    let written = event.encoded();
    for left in decode(&[b":\n\n", &written]).iter().skip(1) {
        assert_eq!(left.encoded(), *left.raw(), "it is plain now");
    }
    if let Some(Ok(text)) = id.as_deref().map(str::from_utf8) {
        let mut same = event.clone().with_id(text.to_owned());
        if let Some(data) = &data {
            same = same.with_data(data.clone().into());
        }
        assert_eq!(
            again(&same),
            [(id.clone(), data.clone())],
            "written as it was"
        );
    }

    let changed = event.clone().with_id("new".to_owned());
    let id = id.map(|_| b"new".to_vec());
    if data.is_some() {
        let parts = [b"1".as_slice(), b"", b"{\n}"].map(Bytes::from_static);
        let split = changed.clone().split(Vec::from(parts.clone()));
        let split: Vec<_> = split.iter().flat_map(again).collect();
        let [first, second, last] = parts.map(|part| Some(part.to_vec()));
        let expected = [(None, first), (None, second), (id.clone(), last)];
        assert_eq!(split, expected, "written as several");
    }
    let changed = changed.with_data(Bytes::from_static(b"{\n}"));
    let expected = (id, data.map(|_| b"{\n}".to_vec()));
    let expected = Some(expected).filter(|meaning| *meaning != (None, None));
    assert_eq!(again(&changed), Vec::from_iter(expected), "written anew");
}
