//! Media types in `Content-Type` and `Accept`, as far as MCP needs them.

use http::HeaderValue;

/// `application/json`
pub const JSON: &str = "application/json";
/// `text/event-stream`
pub const EVENT_STREAM: &str = "text/event-stream";
/// The `Accept` value of a POST, whose response may be one message or a stream of them.
pub const BOTH: &str = "application/json, text/event-stream";

/// Whether a `Content-Type` names this media type, ignoring parameters.
pub fn is(content_type: Option<&HeaderValue>, media: &str) -> bool {
    let written = content_type.map(|value| value.as_bytes().trim_ascii_start());
    let Some((essence, rest)) = written.and_then(|text| text.split_at_checked(media.len())) else {
        return false;
    };
    essence.eq_ignore_ascii_case(media.as_bytes())
        && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
}

/// Whether `Accept` allows both kinds of response to a POST.
pub fn accepts_both<'a>(accept: impl IntoIterator<Item = &'a HeaderValue> + Clone) -> bool {
    // The common form.
    let mut values = accept.clone().into_iter();
    if values.next().is_some_and(|value| value == BOTH) && values.next().is_none() {
        return true;
    }
    accepts(accept.clone(), JSON) && accepts(accept, EVENT_STREAM)
}

/// Whether `Accept` allows this media type. A missing `Accept` allows everything, and the most specific
/// matching range decides (RFC 9110, 12.5.1).
pub fn accepts<'a>(accept: impl IntoIterator<Item = &'a HeaderValue>, media: &str) -> bool {
    let mut any_header = false;
    let mut best: Option<(u8, bool)> = None;
    for value in accept {
        any_header = true;
        let Ok(text) = value.to_str() else { continue };
        for range in text.split(',') {
            let Some(specific) = fits(range, media) else {
                continue;
            };
            let allowed = !refused_by_weight(range);
            // If two ranges are equally specific, one that allows the type is enough.
            best = best.max(Some((specific, allowed)));
        }
    }
    best.map_or(!any_header, |(_, allowed)| allowed)
}

/// How specifically a range names a media type, if it matches.
fn fits(range: &str, media: &str) -> Option<u8> {
    let name = essence(range);
    let kind = media.split_once('/').map(|(kind, _)| kind);
    if name.eq_ignore_ascii_case(media) {
        Some(2)
    } else if name
        .strip_suffix("/*")
        .zip(kind)
        .is_some_and(|(wanted, kind)| wanted.eq_ignore_ascii_case(kind))
    {
        Some(1)
    } else {
        (name == "*/*").then_some(0)
    }
}

/// `;q=0` excludes a range.
fn refused_by_weight(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| {
        let Some((name, weight)) = parameter.split_once('=') else {
            return false;
        };
        name.trim().eq_ignore_ascii_case("q") && weight.trim().parse() == Ok(0.0_f32)
    })
}

fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &'static str, media: &str) -> bool {
        accepts([&HeaderValue::from_static(text)], media)
    }

    #[test]
    fn content_type_ignores_case_and_parameters() {
        let value = HeaderValue::from_static("Application/JSON; charset=utf-8");
        assert!(is(Some(&value), JSON));
        assert!(!is(Some(&value), EVENT_STREAM));
        assert!(!is(None, JSON));
        assert!(!is(
            Some(&HeaderValue::from_static("application/jsonl")),
            JSON
        ));
    }

    #[test]
    fn accept_lists_ranges_and_weights() {
        let both = "application/json, text/event-stream;q=0.5";
        assert!(accept(both, JSON) && accept(both, EVENT_STREAM));
        assert!(accept("*/*", JSON) && accept("text/*", EVENT_STREAM));
        assert!(!accept("text/*", JSON));
        assert!(!accept("application/json", EVENT_STREAM));
        assert!(!accept("text/event-stream; q=0", EVENT_STREAM));
        assert!(!accept("", JSON));
        assert!(!accept("*/*, text/event-stream;q=0", EVENT_STREAM));
        assert!(!accept("text/event-stream;q=0, text/*", EVENT_STREAM));
        assert!(accept("*/*;q=0, application/json", JSON));
    }

    #[test]
    fn a_post_needs_both() {
        let both = |text: &'static str| accepts_both(&[HeaderValue::from_static(text)]);
        assert!(both(BOTH) && both("text/event-stream,application/json") && both("*/*"));
        assert!(!both(JSON) && !both(EVENT_STREAM));
        let headers = [BOTH, "text/event-stream;q=0"].map(HeaderValue::from_static);
        assert_eq!(accepts_both(&headers), accepts(&headers, EVENT_STREAM));
    }

    #[test]
    fn no_accept_header_accepts_everything() {
        assert!(accepts([], JSON));
    }

    #[test]
    fn several_accept_headers_are_one_list() {
        let headers = [
            HeaderValue::from_static("application/json"),
            HeaderValue::from_static("text/event-stream"),
        ];
        assert!(accepts(&headers, JSON) && accepts(&headers, EVENT_STREAM));
    }
}
