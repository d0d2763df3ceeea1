//! The steps of a probe that only a server at a URL has: its own stream, session ids that it does not know, the
//! revision without sessions, and what it is if it did not open a session.

use std::time::Duration;

use bowline_wire::id::UpstreamSessionId;
use bowline_wire::version::Agreed;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;

use super::examination::{Examination, limited};
use super::findings;
use super::peer::{Events, Heard, Opened};
use super::report::{Era, Step, Transport, UnknownId};
use super::trouble::Trouble;
use crate::config;
use crate::upstream::{Conversation, EventSource, is_wrong_transport};

/// The revision without sessions.
const MODERN: &str = "2026-07-28";
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The errors that only servers of that revision have: headers or capabilities are missing, or another version
/// is.
const MODERN_CODES: [i64; 3] = [-32020, -32021, -32022];

/// How long the server's own stream is read for an event with an id.
const LISTEN_LIMIT: Duration = Duration::from_millis(300);

/// The answer to `server/discover`.
#[derive(Deserialize)]
struct DiscoverResult {
    #[serde(rename = "supportedVersions", default)]
    versions: Vec<String>,
}

impl Examination<'_> {
    /// Opens the stream of the server's own messages.
    pub(super) async fn stream(&mut self) {
        let Some(session) = self.open.last() else {
            return;
        };
        let answered = limited(self.peer.send(session, Method::GET)).await;
        let Some(streams) = &mut self.report.streams else {
            return;
        };
        match answered {
            Ok(answer) => {
                streams.get_status = Some(answer.status.as_u16());
                streams.offers_get = answer.is_events();
                if streams.offers_get && !streams.has_event_ids {
                    let mut events = Events::new(EventSource::http(answer.body));
                    let event = tokio::time::timeout(LISTEN_LIMIT, events.next()).await;
                    if let Ok(Ok(Some(event))) = event {
                        streams.has_event_ids = event.id().is_some_and(|id| !id.is_empty());
                    }
                }
            }
            Err(trouble) => streams.get_status = trouble.status().map(|it| it.as_u16()),
        }
    }

    /// Names a session that the server did not issue, as a client does whose server has restarted.
    pub(super) async fn try_unknown_id(&mut self) {
        let Some(session) = self.open.last() else {
            return;
        };
        let Some(unknown) = session.conversation.session_id().and_then(another) else {
            return;
        };
        let lost = Opened {
            conversation: Conversation::http(Some(unknown), Default::default()),
            version: session.version.clone(),
        };
        let Ok(asked) = self.peer.request("ping", None) else {
            return;
        };
        let answered = limited(self.peer.ask(&lost, &asked)).await;
        let pulse = limited(self.peer.pulse(&lost)).await;
        let answer = match answered {
            Ok(_) => UnknownId {
                status: StatusCode::OK.as_u16(),
                ..UnknownId::default()
            },
            Err(trouble) => {
                let Some(status) = trouble.status() else {
                    return;
                };
                let (code, text) = match trouble {
                    Trouble::Refused(refusal) => (refusal.code, refusal.text),
                    _ => (None, None),
                };
                UnknownId {
                    status: status.as_u16(),
                    code,
                    text,
                    ..UnknownId::default()
                }
            }
        };
        let mut answer = UnknownId {
            is_recognized: pulse.is_ok_and(|pulse| pulse.confirms_loss()),
            ..answer
        };
        if !answer.is_recognized {
            answer.rule = rule(&answer);
        }
        if let Some(sessions) = &mut self.report.sessions {
            sessions.unknown_id = Some(answer);
        }
    }

    /// Finds out whether the server speaks the revision without sessions, besides the one that it was opened with.
    pub(super) async fn era(&mut self) {
        self.report.era = Some(match self.is_modern().await {
            true => Era::Both,
            false => Era::Legacy,
        });
    }

    async fn is_modern(&mut self) -> bool {
        let meta = format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"bowline-probe","version":"{}"}}}}}}"#,
            env!("CARGO_PKG_VERSION"),
        );
        let Ok(asked) = self.peer.request("server/discover", Some(&meta)) else {
            return false;
        };
        let answered = match self.peer.is_streamable() {
            true => {
                let method = HeaderValue::from_static("server/discover");
                let headers = HeaderMap::from_iter([(MCP_METHOD, method)]);
                limited(self.peer.ask_with(&asked, Agreed::on(MODERN), &headers)).await
            }
            // On a process or a stream of its own: an older server may take offence.
            false => {
                let mut opened = self.peer.unopened();
                let answered = limited(self.peer.open(&asked, &mut opened)).await;
                self.open.push(opened);
                answered
            }
        };
        match answered {
            Ok(heard) => is_discovered(&heard),
            Err(Trouble::Refused(refusal)) => refusal
                .code
                .is_some_and(|code| MODERN_CODES.contains(&code)),
            Err(_) => false,
        }
    }

    /// Finds out what the server is, if it did not open a session.
    pub(super) async fn not_opened(&mut self, trouble: Trouble) {
        let status = trouble.status();
        if self.peer.is_url() && status == Some(StatusCode::UNAUTHORIZED) {
            self.begin(Step::SignIn);
            self.sign_in(trouble).await;
            return;
        }
        let is_answer = matches!(trouble, Trouble::Refused(_) | Trouble::NotMcp(..));
        if is_answer {
            self.begin(Step::Era);
            if self.is_modern().await {
                self.report.era = Some(Era::Modern);
                self.report.transport = Some(self.peer.transport());
                self.report.findings.push(findings::modern_only());
                return;
            }
            if self.peer.is_streamable() && self.has_endpoint_event().await {
                self.report.era = Some(Era::Legacy);
                self.report.transport = Some(Transport::HttpSse);
                self.report.findings.push(findings::http_sse());
                return;
            }
        }
        let finding = findings::not_opened(&trouble, self.peer.is_url());
        self.report.findings.push(finding);
    }

    /// Whether the server speaks HTTP+SSE, as a gateway finds out. The probe goes on with that.
    pub(super) async fn turns_to_sse(&mut self, trouble: &Trouble) -> bool {
        let is_wrong_transport = trouble.status().is_some_and(is_wrong_transport);
        let is_pinned = self.peer.upstream.config().transport != config::Transport::Auto;
        if is_pinned || !is_wrong_transport || !self.peer.is_streamable() {
            return false;
        }
        let is_sse = self.has_endpoint_event().await;
        if is_sse {
            self.peer.turn_to_sse();
        }
        is_sse
    }

    /// Whether a GET is answered as by a server of 2024-11-05: with the address for messages.
    async fn has_endpoint_event(&self) -> bool {
        let listening = async {
            let answer = self.peer.send(&self.peer.unopened(), Method::GET).await?;
            if !answer.is_events() {
                return Ok(false);
            }
            let mut events = Events::new(EventSource::http(answer.body));
            while let Some(event) = events.next().await? {
                if event.data().is_some() {
                    return Ok(event.kind() == Some(b"endpoint"));
                }
            }
            Ok(false)
        };
        limited(listening).await.unwrap_or(false)
    }
}

fn is_discovered(heard: &Heard) -> bool {
    let result = heard
        .message
        .result()
        .map(serde_json::from_str::<DiscoverResult>);
    matches!(result, Some(Ok(result)) if result.versions.iter().any(|it| it == MODERN))
}

/// An id of the same form that the server did not issue.
fn another(id: &UpstreamSessionId) -> Option<UpstreamSessionId> {
    /// Fewer than the last group of a UUID has, so that what its other groups say stays true.
    const CHANGED: usize = 8;
    let mut bytes = id.as_str().as_bytes().to_vec();
    let digits = bytes
        .iter_mut()
        .rev()
        .filter(|byte| byte.is_ascii_alphanumeric());
    for byte in digits.take(CHANGED) {
        *byte = match *byte {
            b'9' => b'0',
            b'f' => b'a',
            b'F' => b'A',
            b'z' => b'g',
            b'Z' => b'G',
            other => other + 1,
        };
    }
    let another = UpstreamSessionId::parse(&bytes).ok()?;
    (another.as_str() != id.as_str()).then_some(another)
}

/// The entry of `session_lost` that describes this answer, if there can be one: what has no error in it is
/// never a loss.
fn rule(answer: &UnknownId) -> Option<String> {
    let mut lines = vec![format!("status = {}", answer.status)];
    lines.extend(answer.code.map(|code| format!("code = {code}")));
    // What a server may write in another way in its JSON would not be found there.
    let is_plain = |it: char| matches!(it, ' '..='~') && !matches!(it, '"' | '\\');
    let is_text = |it: &&String| it.chars().all(is_plain);
    if let Some(text) = answer.text.as_ref().filter(is_text) {
        lines.push(format!("text = {}", serde_json::Value::from(text.as_str())));
    }
    let is_common = matches!(answer.status, 200..=299 | 401 | 500..=599);
    (lines.len() > 1 || !is_common).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_id_has_the_same_form() {
        for (id, changed) in [
            (
                "1868a90c-cdef-4f09-a3b1-0123456789ef",
                "1868a90c-cdef-4f09-a3b1-0123567890fa",
            ),
            ("zZfF9", "gGaA0"),
            ("a", "b"),
        ] {
            let issued = UpstreamSessionId::parse(id.as_bytes()).unwrap();
            assert_eq!(another(&issued).unwrap().as_str(), changed);
        }
        let issued = UpstreamSessionId::parse(b"--").unwrap();
        assert!(another(&issued).is_none());
    }

    #[test]
    fn a_rule_names_what_a_configuration_accepts() {
        let answer = |status, code, text: Option<&str>| UnknownId {
            status,
            code,
            text: text.map(str::to_owned),
            ..UnknownId::default()
        };
        assert_eq!(
            rule(&answer(400, Some(-32000), Some("No session"))).unwrap(),
            "status = 400\ncode = -32000\ntext = \"No session\""
        );
        let quoted = answer(400, Some(-32000), Some("No \"session\""));
        assert_eq!(rule(&quoted).unwrap(), "status = 400\ncode = -32000");
        assert_eq!(rule(&answer(422, None, None)).unwrap(), "status = 422");
        for common in [200, 401, 500] {
            assert_eq!(rule(&answer(common, None, None)), None, "{common}");
        }
    }
}
