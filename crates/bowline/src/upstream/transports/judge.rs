//! What an answer with an error status means: whether the request ran, and what becomes of the session.
//!
//! One function decides it for every transport that speaks HTTP, from facts that the transport reports. It reads no
//! prose of a server's, and no header decides but a challenge: `Retry-After` only travels.

use bowline_wire::codes::SESSION_NOT_FOUND;
use http::StatusCode;

/// What a transport reports of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) status: StatusCode,
    pub(super) content: Content,
    /// It asks for credentials (`WWW-Authenticate`).
    pub(super) has_challenge: bool,
    /// The request named the upstream's session.
    pub(super) names_session: bool,
    pub(super) stream: Stream,
}

/// What the body of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The JSON-RPC answer to this request, with the code of its error.
    Own(Option<i64>),
    /// A JSON-RPC answer that names no request, or another one.
    Unaddressed,
    /// Anything else, read whole.
    Foreign,
    /// It was cut, or cannot be read.
    Unreadable,
}

/// The stream on which a server may answer beside the answer to the POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// The transport has none.
    None,
    /// It is open, and nobody has waited for it yet.
    Open,
    /// It said something to others within a moment.
    Spoke,
    /// It said nothing within a moment.
    Silent,
    /// It has ended since the request was begun, and the session with it. Nothing is sent on one that had ended before.
    Broke,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the server's word: the request ran. If `may_deny_session`, a ping tells whether the session lives.
    Answer { may_deny_session: bool },
    /// The request did not run, and the session is lost.
    Lost,
    /// The request did not run. If `may_deny_session`, a ping tells whether the session lives.
    Declined { may_deny_session: bool },
    /// It proves nothing.
    Unknown,
    /// The stream may still have the answer. It is waited for a moment, and then judged again.
    Listen,
}

/// Decides what an answer means that is not a success.
pub(super) fn judge(facts: Facts) -> Verdict {
    let Facts {
        status,
        content,
        has_challenge,
        names_session,
        stream,
    } = facts;
    let is_gone = is_gone(status);
    let is_demand = has_challenge && is_about_credentials(status);
    match content {
        // By the protocol, this answer is about the session.
        Content::Own(Some(SESSION_NOT_FOUND))
            if names_session && status == StatusCode::NOT_FOUND => {}
        // A demand for credentials comes before the request is looked at, whatever it says besides.
        Content::Own(_) | Content::Unreadable if is_demand => {}
        Content::Own(_) => {
            return Verdict::Answer {
                may_deny_session: names_session && is_gone,
            };
        }
        Content::Unreadable => return unproven(stream),
        Content::Unaddressed | Content::Foreign => {}
    }
    if !status.is_client_error() {
        return match content {
            // A server that failed, rather than the way to it, means the only request that it was sent.
            Content::Unaddressed if !is_about_the_way(status) => Verdict::Answer {
                may_deny_session: false,
            },
            _ => unproven(stream),
        };
    }
    let may_deny_session = names_session && (is_gone || is_no_endpoint(status));
    match stream {
        // What it had to say is lost.
        Stream::Broke => Verdict::Unknown,
        Stream::Open if may_deny_session => Verdict::Listen,
        // The stream lives, and may be all that a request needs.
        Stream::Spoke if may_deny_session && is_gone => Verdict::Unknown,
        Stream::Silent if may_deny_session && is_gone => Verdict::Lost,
        Stream::None if names_session && status == StatusCode::NOT_FOUND => Verdict::Lost,
        Stream::None | Stream::Open | Stream::Spoke | Stream::Silent => {
            Verdict::Declined { may_deny_session }
        }
    }
}

/// What proves nothing may still be answered on the stream.
fn unproven(stream: Stream) -> Verdict {
    match stream {
        Stream::Open => Verdict::Listen,
        Stream::None | Stream::Spoke | Stream::Silent | Stream::Broke => Verdict::Unknown,
    }
}

/// What a server answers that does not know a session.
pub(super) fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// What a server answers whose sessions are somewhere else by now, for example because it speaks another transport.
fn is_no_endpoint(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED
    )
}

/// Whether the status says that the server was not reached.
pub(super) fn is_about_the_way(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Whether the status is about who asks.
pub(super) fn is_about_credentials(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: [Stream; 5] = [
        Stream::None,
        Stream::Open,
        Stream::Spoke,
        Stream::Silent,
        Stream::Broke,
    ];

    fn all(mut check: impl FnMut(Facts)) {
        let contents = [
            Content::Own(None),
            Content::Own(Some(-32602)),
            Content::Own(Some(SESSION_NOT_FOUND)),
            Content::Unaddressed,
            Content::Foreign,
            Content::Unreadable,
        ];
        for status in 400..600 {
            let status = StatusCode::from_u16(status).unwrap();
            for content in contents {
                for stream in STREAMS {
                    for bits in 0..4 {
                        check(Facts {
                            status,
                            content,
                            has_challenge: bits & 1 > 0,
                            names_session: bits & 2 > 0,
                            stream,
                        });
                    }
                }
            }
        }
    }

    /// Whether it is the server's word: not if it denies the session by the protocol, or asks for credentials.
    fn is_word(facts: Facts) -> bool {
        let status = facts.status.as_u16();
        match facts.content {
            Content::Own(Some(SESSION_NOT_FOUND)) if facts.names_session && status == 404 => false,
            Content::Own(_) => !(facts.has_challenge && [401, 403].contains(&status)),
            Content::Unaddressed | Content::Foreign | Content::Unreadable => false,
        }
    }

    #[test]
    fn a_servers_own_answer_is_its_word_whatever_comes_with_it() {
        all(|facts| {
            let is_answer = matches!(judge(facts), Verdict::Answer { .. });
            let is_failed_servers =
                facts.content == Content::Unaddressed && facts.status.is_server_error();
            if is_word(facts) {
                assert!(is_answer, "{facts:?}");
            } else if !is_failed_servers {
                assert!(!is_answer, "{facts:?}");
            }
        });
    }

    #[test]
    fn that_it_did_not_run_takes_a_refusal_that_was_read_whole() {
        all(|facts| {
            let says_not_run = matches!(judge(facts), Verdict::Lost | Verdict::Declined { .. });
            if says_not_run {
                assert!(facts.status.is_client_error(), "{facts:?}");
                let is_demand = facts.has_challenge && is_about_credentials(facts.status);
                assert!(
                    is_demand || facts.content != Content::Unreadable,
                    "{facts:?}"
                );
                assert!(!is_word(facts), "{facts:?}");
            }
        });
    }

    #[test]
    fn while_its_stream_lives_no_session_is_lost() {
        all(|facts| {
            if matches!(facts.stream, Stream::Open | Stream::Spoke) {
                assert_ne!(judge(facts), Verdict::Lost, "{facts:?}");
            }
            if facts.stream != Stream::Open {
                assert_ne!(judge(facts), Verdict::Listen, "{facts:?}");
            }
        });
    }

    #[test]
    fn the_table_of_refusals() {
        let declined = |may_deny_session| Verdict::Declined { may_deny_session };
        for (status, on_http, open, spoke, silent) in [
            (
                404,
                Verdict::Lost,
                Verdict::Listen,
                Verdict::Unknown,
                Verdict::Lost,
            ),
            (
                410,
                declined(true),
                Verdict::Listen,
                Verdict::Unknown,
                Verdict::Lost,
            ),
            (
                400,
                declined(true),
                Verdict::Listen,
                declined(true),
                declined(true),
            ),
            (
                401,
                declined(false),
                declined(false),
                declined(false),
                declined(false),
            ),
            (
                403,
                declined(false),
                declined(false),
                declined(false),
                declined(false),
            ),
            (
                405,
                declined(true),
                Verdict::Listen,
                declined(true),
                declined(true),
            ),
            (
                429,
                declined(false),
                declined(false),
                declined(false),
                declined(false),
            ),
            (
                500,
                Verdict::Unknown,
                Verdict::Listen,
                Verdict::Unknown,
                Verdict::Unknown,
            ),
            (
                502,
                Verdict::Unknown,
                Verdict::Listen,
                Verdict::Unknown,
                Verdict::Unknown,
            ),
            (
                503,
                Verdict::Unknown,
                Verdict::Listen,
                Verdict::Unknown,
                Verdict::Unknown,
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let verdicts = STREAMS.map(|stream| {
                judge(Facts {
                    status,
                    content: Content::Foreign,
                    has_challenge: false,
                    names_session: true,
                    stream,
                })
            });
            let broke = Verdict::Unknown;
            let table = [on_http, open, spoke, silent, broke];
            assert_eq!(verdicts, table, "{status}");
        }
    }
}
