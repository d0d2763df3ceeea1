//! What must hold of any header values: ids come back as they were or not at all, and what a
//! client accepts does not depend on how it writes its list.
//!
//! Each line of the input is one value.

use bowline_wire::id::{BadUpstreamSessionId, SessionId, UpstreamSessionId};
use bowline_wire::media::{self, EVENT_STREAM, JSON};
use http::HeaderValue;

/// Panics where the input shows a bug.
pub(crate) fn check(input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n');
    let values: Vec<HeaderValue> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    for value in &values {
        ours(value);
        theirs(value);
        content_type(value);
    }
    for media in [JSON, EVENT_STREAM] {
        accept(&values, media);
    }
}

fn ours(value: &HeaderValue) {
    let Some(id) = SessionId::from_header(value) else {
        return;
    };
    assert_eq!(id.to_header(), value, "another text for the same id");
    assert_eq!(SessionId::from_header(&id.to_header()), Some(id));
    assert_eq!(format!("{id:?}"), "SessionId(…)");
    assert!(id.to_header().is_sensitive());
}

fn theirs(value: &HeaderValue) {
    let bytes = value.as_bytes();
    let visible = bytes.iter().all(u8::is_ascii_graphic);
    match UpstreamSessionId::issued(value) {
        Ok(id) => {
            assert!(visible && (1..=UpstreamSessionId::MAX_LEN).contains(&bytes.len()));
            assert_eq!(id.as_str(), value);
            assert_eq!(format!("{id:?}"), "UpstreamSessionId(…)");
        }
        Err(BadUpstreamSessionId::Empty) => assert!(bytes.is_empty()),
        Err(BadUpstreamSessionId::TooLong) => assert!(bytes.len() > UpstreamSessionId::MAX_LEN),
        Err(BadUpstreamSessionId::NotVisibleAscii) => assert!(!visible),
    }
}

fn content_type(value: &HeaderValue) {
    let (json, events) = (
        media::is(Some(value), JSON),
        media::is(Some(value), EVENT_STREAM),
    );
    assert!(!(json && events), "two types at once");
    // A type without parameters is also a list of one.
    if json && !value.as_bytes().contains(&b';') {
        assert!(media::accepts([value], JSON) && !media::accepts([value], EVENT_STREAM));
    }
}

fn accept(values: &[HeaderValue], media: &str) {
    let accepted = media::accepts(values, media);
    assert_eq!(media::accepts(values.iter().rev(), media), accepted);
    let alone = values.iter().any(|value| media::accepts([value], media));
    assert!(!accepted || alone || values.is_empty());
    // Only a weight can take back what another value allows.
    let weighs = values.iter().any(|value| value.as_bytes().contains(&b'='));
    assert!(accepted || !alone || weighs);
    // Several headers are one list (RFC 9110, 5.3); what is not text is no part of any.
    let texts: Vec<&str> = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if let (false, Ok(joined)) = (texts.is_empty(), HeaderValue::from_str(&texts.join(", "))) {
        assert_eq!(media::accepts([&joined], media), accepted);
    }
}
