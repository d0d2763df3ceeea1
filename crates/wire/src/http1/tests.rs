use proptest::prelude::*;

use super::*;

/// A complete response: status, whether the connection can be reused, the body, and the remaining input.
/// `None`: the input was not complete.
type Read = (u16, bool, Vec<u8>, Vec<u8>);

/// Reads a response that arrives in pieces, split at these positions.
fn read(answer: &[u8], cuts: &[usize]) -> Result<Option<Read>, Malformed> {
    let mut input = BytesMut::new();
    let mut head: Option<Head> = None;
    let mut body = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&answer.len()]) {
        input.extend_from_slice(&answer[from..to]);
        from = to;
        if head.is_none() {
            head = take_head(&mut input)?;
        }
        if let Some(head) = &mut head {
            while let Some(data) = head.body.take(&mut input)? {
                assert!(!data.is_empty());
                body.extend_from_slice(&data);
            }
        }
    }
    Ok(head
        .filter(|head| head.body.has_ended() || head.body == Framing::UntilClosed)
        .map(|head| (head.status.as_u16(), head.keeps_alive, body, input.to_vec())))
}

fn whole(answer: &str) -> Result<Option<Read>, Malformed> {
    read(answer.as_bytes(), &[])
}

fn body_of(answer: &str) -> String {
    let (_, _, body, rest) = whole(answer).unwrap().unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    String::from_utf8(body).unwrap()
}

#[test]
fn a_body_ends_where_its_length_says() {
    assert_eq!(
        body_of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        "hello"
    );
    assert_eq!(
        whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"),
        Ok(None)
    );
    let (_, _, body, rest) = whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!")
        .unwrap()
        .unwrap();
    assert_eq!((&body[..], &rest[..]), (&b"hello"[..], &b"!"[..]));
}

#[test]
fn chunks_are_joined_and_their_frame_is_dropped() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |rest: &str| whole(&format!("{head}{rest}"));
    assert_eq!(body_of(&format!("{head}5\r\nhello\r\n0\r\n\r\n")), "hello");
    assert_eq!(
        body_of(&format!(
            "{head}5;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n00\r\nX-Sum: 1\r\n\r\n"
        )),
        "hello0123456789"
    );
    for short in [
        "5\r\nhello\r\n",
        "5\r\nhello\r\n0\r\n",
        "5\r\nhel",
        "",
        "5",
        "0\r\nX: 1\r\n",
    ] {
        assert_eq!(chunked(short), Ok(None), "{short:?}");
    }
    for bad in [
        "5\r\nhello!\r\n",
        "x\r\n",
        "-1\r\n",
        "5\r\nhelloX\r\n",
        "fffffffffffffffff\r\n",
        "\r\n",
    ] {
        assert_eq!(chunked(bad), Err(Malformed::Chunk), "{bad:?}");
    }
    // Independent of whether it arrives at once.
    for end in ["", "\r\nhello\r\n0\r\n\r\n"] {
        let long = format!("5;{}{end}", "a".repeat(MAX_CHUNK_LINE));
        assert_eq!(chunked(&long), Err(Malformed::Chunk));
    }
    let endless = format!("0\r\nx: {}", "a".repeat(MAX_HEAD));
    assert_eq!(chunked(&endless), Err(Malformed::Chunk));
}

#[test]
fn without_a_length_a_body_ends_with_the_connection() {
    let read = whole("HTTP/1.1 200 OK\r\n\r\nhello").unwrap().unwrap();
    assert_eq!(read, (200, false, b"hello".to_vec(), Vec::new()));
    let same = "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nxyz";
    assert_eq!(
        whole(same).unwrap().unwrap(),
        (200, false, b"xyz".to_vec(), Vec::new())
    );
    // Bowline could not decode it.
    for codings in ["chunked, gzip", "gzip, chunked", "gzip"] {
        let other = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\nxyz");
        assert_eq!(whole(&other).unwrap_err(), Malformed::Coding, "{codings}");
    }
}

#[test]
fn some_answers_have_no_body() {
    for head in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
        "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    ] {
        assert_eq!(body_of(head), "", "{head}");
    }
}

#[test]
fn interim_answers_are_skipped() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                  HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(
        whole(answer).unwrap().unwrap(),
        (404, true, b"no".to_vec(), Vec::new())
    );
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    assert_eq!(whole(switched), Err(Malformed::Switched));
}

#[test]
fn a_connection_stays_only_if_both_sides_know_where_the_answer_ends() {
    let stays = |version: &str, headers: &str| {
        let answer = format!("HTTP/{version} 200 OK\r\n{headers}\r\n0\r\n\r\n");
        let mut input = BytesMut::from(answer.as_bytes());
        take_head(&mut input).unwrap().unwrap().keeps_alive
    };
    assert!(stays("1.1", "Content-Length: 5\r\n"));
    assert!(stays("1.1", "Transfer-Encoding: Chunked\r\n"));
    assert!(!stays("1.1", "Content-Length: 5\r\nConnection: Close\r\n"));
    assert!(!stays(
        "1.1",
        "Content-Length: 5\r\nConnection: x, close\r\n"
    ));
    assert!(!stays(
        "1.1",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    ));
    assert!(!stays("1.1", ""));
    assert!(!stays("1.0", "Content-Length: 5\r\n"));
    assert!(stays(
        "1.0",
        "Content-Length: 5\r\nConnection: keep-alive\r\n"
    ));
}

#[test]
fn doubtful_lengths_are_refused() {
    for length in [
        "+5",
        "-5",
        "5, 5",
        "",
        "0x5",
        "99999999999999999999",
        "5\r\nContent-Length: 6",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello");
        assert_eq!(whole(&answer), Err(Malformed::Length), "{length}");
    }
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(body_of(twice), "hello");
}

#[test]
fn what_is_no_head_is_refused() {
    for bad in [
        "hello there\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
    ] {
        assert!(matches!(whole(bad), Err(Malformed::Head(_))), "{bad}");
    }
    for end in ["", "\r\n\r\n"] {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}{end}", "a".repeat(MAX_HEAD));
        assert_eq!(whole(&long), Err(Malformed::LongHead));
    }
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "x: y\r\n".repeat(MAX_HEADERS + 1)
    );
    assert_eq!(
        whole(&many),
        Err(Malformed::Head(httparse::Error::TooManyHeaders))
    );
}

#[test]
fn headers_keep_their_bytes_and_their_order() {
    let answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX-Latin: caf\xe9\r\nset-cookie:b=2\r\nContent-Length: 0\r\n\r\n";
    let mut input = BytesMut::from(&answer[..]);
    let head = take_head(&mut input).unwrap().unwrap();
    let cookies: Vec<_> = head.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(head.headers["x-latin"].as_bytes(), b"caf\xe9");
}

/// Valid responses, and some invalid ones.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let chunk = proptest::collection::vec(any::<u8>(), 1..40);
    let chunked = proptest::collection::vec(chunk, 0..4).prop_map(|chunks| {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in chunks {
            answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
            answer.extend(chunk);
            answer.extend(b"\r\n");
        }
        answer.extend(b"0\r\nx: y\r\n\r\n");
        answer
    });
    let sized = proptest::collection::vec(any::<u8>(), 0..80).prop_map(|body| {
        let mut answer = format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend(body);
        answer
    });
    let odd = "HTTP/1\\.[01] (200|404) [a-z]{0,3}\r?\n(Content-Length: [0-9+]{1,2}\r\n|Transfer-Encoding: (chunked|x)\r\n){0,2}\r\n([0-9a-f]{1,2}\r\n[a-z\r\n]{0,12}){0,3}";
    prop_oneof![chunked, sized, odd.prop_map(String::into_bytes)]
}

proptest! {
    #[test]
    fn how_an_answer_was_cut_makes_no_difference(
        answer in answers(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(answer.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(read(&answer, &cuts), read(&answer, &[]));
    }

    #[test]
    fn nothing_that_arrives_makes_it_panic(answer: Vec<u8>, cut: prop::sample::Index) {
        let cut = cut.index(answer.len() + 1);
        drop(read(&answer, &[cut]));
    }
}
