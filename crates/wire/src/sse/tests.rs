use proptest::prelude::{Strategy, any, prop, proptest};

use std::time::Duration;

use super::event::{MAX_NAME, scanned};
use super::*;
use crate::message::RawIdBuf;

const CAP: usize = 1 << 20;

/// All events of a stream that arrives in these chunks, and the rest of the input.
fn decode(chunks: &[&[u8]]) -> (Vec<Event>, Vec<u8>) {
    let mut decoder = Decoder::new(CAP);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = decoder.next_event().unwrap() {
            events.push(event);
        }
    }
    (events, decoder.buffer.to_vec())
}

/// An event's id and data.
type Meaning = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What a client reads from events, without empty blocks.
fn meanings(events: &[Event]) -> Vec<Meaning> {
    events
        .iter()
        .map(|event| {
            let id = event.id().map(<[u8]>::to_vec);
            (id, event.data().map(Vec::from))
        })
        .filter(|meaning| *meaning != (None, None))
        .collect()
}

/// The text of an event with this id and these data, where it has any.
fn rewritten(event: &Event, id: Option<&str>, data: Option<&[u8]>) -> Bytes {
    let mut event = event.clone();
    if let Some(id) = id {
        event = event.with_id(id.to_owned());
    }
    if let Some(data) = data {
        event = event.with_data(Bytes::copy_from_slice(data));
    }
    event.encoded()
}

fn one(text: &str) -> Event {
    let (events, rest) = decode(&[text.as_bytes()]);
    assert_eq!((events.len(), rest.len()), (1, 0), "{text:?}");
    events.into_iter().next().unwrap()
}

#[test]
fn fields_of_an_event() {
    let event = one(": hello\nid: 7\nevent:message\ndata: {\"a\":\ndata:1}\nretry: 5\n\n");
    assert_eq!(event.id(), Some(&b"7"[..]));
    assert_eq!(event.data().unwrap(), &b"{\"a\":\n1}"[..]);
}

#[test]
fn an_empty_id_is_an_id_and_no_id_is_none() {
    assert_eq!(one("id:\ndata: x\n\n").id(), Some(&b""[..]));
    assert_eq!(one("id\ndata: x\n\n").id(), Some(&b""[..]));
    assert_eq!(one("data: x\n\n").id(), None);
    assert_eq!(one("id: a\0b\ndata: x\n\n").id(), None);
}

#[test]
fn every_line_ending_counts() {
    for text in [
        "data: x\n\n",
        "data: x\r\n\r\n",
        "data: x\r\r",
        "data: x\n\r\n",
        "data: x\r\n\n",
    ] {
        assert_eq!(one(text).data().unwrap(), &b"x"[..], "{text:?}");
    }
}

#[test]
fn an_event_is_handed_out_as_soon_as_it_is_complete() {
    let mut decoder = Decoder::new(CAP);
    decoder.push(Bytes::from_static(b"data: x\r\n\r"));
    assert!(decoder.next_event().unwrap().is_some());
    decoder.push(Bytes::from_static(b"\ndata: y\r\n\r\n"));
    assert_eq!(decoder.next_event().unwrap().unwrap().raw(), &b"\n"[..]);
    assert_eq!(
        decoder.next_event().unwrap().unwrap().data().unwrap(),
        &b"y"[..]
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_stream() {
    let text = "\u{feff}id: 1\ndata: x\n\n\u{feff}id: 2\n\n".as_bytes();
    for piece in 1..text.len() {
        let chunks: Vec<_> = text.chunks(piece).collect();
        let (events, rest) = decode(&chunks);
        let ids: Vec<_> = events.iter().map(Event::id).collect();
        assert_eq!((ids, rest.len()), (vec![Some(&b"1"[..]), None], 0));
        assert_eq!(rewritten(&events[0], Some("2"), None), "id: 2\ndata: x\n\n");
    }
}

#[test]
fn rewriting_touches_only_what_it_names() {
    let event =
        one(": c\r\nid: 7\r\nevent: message\r\ndata: {\r\ndata: }\r\nretry: 5\r\nodd\r\n\r\n");
    assert_eq!(
        rewritten(&event, Some("new"), None),
        &b": c\r\nid: new\r\nevent: message\r\ndata: {\r\ndata: }\r\nretry: 5\r\nodd\r\n\r\n"[..]
    );
    assert_eq!(
        rewritten(&event, None, Some(b"[\n]")),
        &b": c\r\nid: 7\r\nevent: message\r\ndata: [\r\ndata: ]\r\nretry: 5\r\nodd\r\n\r\n"[..]
    );
}

#[test]
fn lines_that_some_reader_would_split_are_left_out() {
    for odd in [
        "event: x\u{2028}data: y",
        "event: two words",
        "event: \u{e9}",
        "event: x\0",
        "event:  x",
        ": \u{85}data: y",
        ": \u{1c}data: y",
        "retry: 5\u{c}data: y",
        "retry: ",
        "retry",
        "retry: -1",
        "id: \0\u{b}data: y",
        "odd\u{2029}data: y",
        "odd: \u{1e}",
    ] {
        for (before, after) in [("", "data: [1,2]\n"), ("data: [1,2]\n", ": c\n")] {
            let event = one(&format!("{before}{odd}\n{after}\n"));
            assert_ne!(event.encoded(), event.raw(), "{odd:?}");
            let left = format!("{before}{after}\n");
            assert_eq!(rewritten(&event, None, None), left, "{odd:?}");
            if !before.is_empty() || after.starts_with("data") {
                let split = event.split(vec!["1".into(), "2".into()]);
                let split: Vec<_> = split.iter().map(Event::encoded).collect();
                let left = left.replace("[1,2]", "2");
                assert_eq!(
                    split.concat(),
                    format!("data: 1\n\n{left}").as_bytes(),
                    "{odd:?}"
                );
            }
        }
    }
    let long = format!("event: {}\ndata: x\n\n", "e".repeat(MAX_NAME + 1));
    assert_eq!(one(&long).encoded(), "data: x\n\n");
    // Between lines that were apart, a line ending must not appear or disappear.
    let event = one("data: x\revent: \u{2028}\r\n\n");
    assert_eq!(
        meanings(&decode(&[&rewritten(&event, None, None)]).0),
        meanings(&[event])
    );
    for plain in [
        "event: message\ndata: x\n\n",
        "event\nevent:a-b_c/9\n: c\tc\n:\nodd\nretry: 10\nid: 1\nid:\ndata: \u{2028}\n\n",
    ] {
        assert_eq!(one(plain).encoded(), plain);
    }
}

#[test]
fn lines_that_meet_stay_two_lines() {
    let event = one("data\r:\rdata\r\n\n");
    assert_eq!(
        one(&String::from_utf8_lossy(&rewritten(
            &event,
            None,
            Some(b"x")
        )))
        .data()
        .unwrap(),
        &b"x"[..]
    );
}

#[test]
fn size_is_capped_with_or_without_an_end() {
    let mut decoder = Decoder::new(16);
    decoder.push(Bytes::from_static(b"data: 0123456789"));
    assert_eq!(decoder.next_event(), Ok(None));
    decoder.push(Bytes::from_static(b"0"));
    let too_large = || EventTooLarge {
        max_event: 16,
        what: Skipped::Unknown,
    };
    assert_eq!(decoder.next_event(), Err(too_large()));
    assert_eq!(decoder.next_event(), Ok(None));
    assert!(!decoder.is_between_events());

    let mut decoder = Decoder::new(8);
    decoder.push(Bytes::from_static(b"data: 0123456789\n\n"));
    assert!(decoder.next_event().is_err());
}

#[test]
fn what_is_too_large_is_skipped_while_it_arrives_and_it_is_told_whose_it_is() {
    let stream = |line: &str| {
        let lines = [
            "data: first",
            "",
            "event: message",
            r#"data: {"jsonrpc":"2.0","#,
            r#"data: "result":"#,
            ": a comment",
            r#"data:"0123456789","#,
            "id: 9",
            r#"data: "id":7}"#,
            "",
            "data: next",
            "",
            "",
        ];
        lines.join(line)
    };
    let answer = Skipped::Answer(RawIdBuf::new("7"));
    for ending in ["\n", "\r\n", "\r"] {
        let stream = stream(ending);
        for piece in 1..stream.len() {
            let mut decoder = Decoder::new(20);
            let (mut events, mut told) = (Vec::new(), Vec::new());
            for chunk in stream.as_bytes().chunks(piece) {
                decoder.push(Bytes::copy_from_slice(chunk));
                loop {
                    match decoder.next_event() {
                        Ok(Some(event)) => events.extend(event.data().map(Vec::from)),
                        Ok(None) => break,
                        Err(too_large) => told.push(too_large.what),
                    }
                }
                assert!(decoder.buffer.len() <= 20);
            }
            assert_eq!(
                events,
                [b"first".to_vec(), b"next".to_vec()],
                "{ending:?} {piece}"
            );
            assert_eq!(told, std::slice::from_ref(&answer));
            assert!(decoder.is_between_events());
        }
    }
}

#[test]
fn a_cut_event_is_not_handed_out() {
    let mut decoder = Decoder::new(CAP);
    decoder.push(Bytes::from_static(b"data: x\n\ndata: half"));
    assert!(decoder.next_event().unwrap().is_some());
    assert_eq!(decoder.next_event(), Ok(None));
    assert!(!decoder.is_between_events());
}

/// Bytes that are likely to be interesting to an SSE parser.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        ":",
        " ",
        "data",
        "data: ",
        "id: ",
        "id",
        "event: message",
        "event",
        "retry: 1",
        "retry: -",
        "x",
        "{}",
        "\u{feff}",
        "\0",
        "é",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
}

fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| &stream[pair[0]..pair[1]])
        .collect()
}

#[test]
fn an_event_is_split_and_the_last_part_keeps_the_rest() {
    let split = |text: &str, id: Option<&str>, parts: &[&str]| {
        let parts = parts
            .iter()
            .map(|part| Bytes::copy_from_slice(part.as_bytes()));
        let mut event = one(text);
        if let Some(id) = id {
            event = event.with_id(id.to_owned());
        }
        let split = event.split(parts.collect());
        let split: Vec<_> = split.iter().map(Event::encoded).collect();
        String::from_utf8(split.concat()).unwrap()
    };
    assert_eq!(
        split(
            "event: message\r\nid: 7\r\nretry: 5\r\ndata: [1,2]\r\n\r\n",
            Some("m"),
            &["1", "2"]
        ),
        "event: message\ndata: 1\n\nevent: message\r\nid: m\r\nretry: 5\r\ndata: 2\r\n\r\n"
    );
    assert_eq!(split("data: [1]\n\n", None, &["1"]), "data: 1\n\n");
    assert_eq!(split("data: []\n\n", None, &[]), "data: []\n\n");
    assert_eq!(
        split("data: [1,\ndata: {\ndata: }]\n\n", None, &["1", "{\n}"]),
        "data: 1\n\ndata: {\ndata: }\n\n"
    );
    assert_eq!(
        split("\u{feff}data: [1,2]\n\n", None, &["1", "2"]),
        "data: 1\n\ndata: 2\n\n"
    );
}

#[test]
fn an_event_of_data_reads_back() {
    for (data, read) in [
        ("{}", "{}"),
        ("{\r\n}", "{\n\n}"),
        ("{\r}\n", "{\n}\n"),
        ("", ""),
    ] {
        let event = Event::of_message(data).encoded();
        let event = one(std::str::from_utf8(&event).unwrap());
        assert_eq!(event.data().unwrap(), read.as_bytes());
        assert_eq!(event.id(), None);
    }
}

proptest! {
    #[test]
    fn chunk_boundaries_never_change_events(stream in any_stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let (whole, _) = decode(&[&stream]);
        let (chunked, rest) = decode(&cut(&stream, &cuts));
        assert_eq!(meanings(&chunked), meanings(&whole));
        let mut bytes: Vec<u8> = chunked.iter().flat_map(|event| event.raw().to_vec()).collect();
        bytes.extend(rest);
        let stream = stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&stream);
        assert_eq!(bytes, stream, "not a byte is lost, added or moved");
    }

    #[test]
    fn what_is_noted_while_an_event_is_read_is_what_a_scan_finds(stream in any_stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        for event in decode(&cut(&stream, &cuts)).0 {
            let scanned = scanned(event.raw());
            assert_eq!(event.id(), scanned.id.as_deref());
            assert_eq!(event.data(), scanned.data);
            assert_eq!(event.kind(), scanned.kind.as_deref());
            assert_eq!(event.retry(), scanned.retry.map(Duration::from_millis));
            assert_eq!(event.is_plain(), scanned.is_plain);
        }
    }

    #[test]
    fn rewriting_with_the_same_values_means_the_same(stream in any_stream()) {
        for event in decode(&[&stream]).0 {
            let id = event.id().map(|id| String::from_utf8_lossy(id).into_owned());
            let again = rewritten(&event, id.as_deref(), event.data().as_deref());
            let (events, _) = decode(&[b":\n\n", &again]);
            assert_eq!(meanings(&events), meanings(&[event]));
        }
    }

    #[test]
    fn never_panics_on_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for event in decode(&[&bytes]).0 {
            drop((event.id(), event.data(), rewritten(&event, Some("x"), Some(b"y"))));
        }
    }
}
