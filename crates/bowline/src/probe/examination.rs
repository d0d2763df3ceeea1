//! The steps of a probe. Each one adds what it finds to the report.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_egress::CookieUrl;
use bowline_wire::version::Agreed;
use http::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::cookies;
use super::findings;
use super::known::Known;
use super::peer::{Heard, Opened, Peer};
use super::report::{Listing, Offer, Pings, Report, ServerInfo, Sessions, Step, Streams};
use super::trouble::{Trouble, shortened};
use crate::upstream::{UpstreamError, count_safe};

/// The revisions that are offered, newest first.
const OFFERS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How long a request may take once the server has answered one.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

const PINGS: usize = 5;
/// How many pages of a list are read.
const MAX_PAGES: usize = 50;
/// How many names of a server's are kept.
const MAX_NAMES: usize = 32;

/// What `initialize` answers, as far as it is shown.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    protocol_version: String,
    #[serde(default)]
    capabilities: BTreeMap<String, IgnoredAny>,
    server_info: Option<Implementation>,
}

#[derive(Deserialize)]
struct Implementation {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

/// A probe under way.
pub(super) struct Examination<'a> {
    pub(super) peer: Peer,
    pub(super) report: Report,
    /// The sessions that were opened and not ended.
    pub(super) open: Vec<Opened>,
    pub(super) progress: &'a (dyn Fn(Step) + Sync),
    pub(super) step: Step,
    known: Known,
}

impl<'a> Examination<'a> {
    pub(super) fn new(peer: Peer, server: &str, progress: &'a (dyn Fn(Step) + Sync)) -> Self {
        Self {
            peer,
            report: Report {
                server: server.to_owned(),
                ..Report::default()
            },
            open: Vec::new(),
            progress,
            step: Step::Open,
            known: Known::default(),
        }
    }

    pub(super) fn begin(&mut self, step: Step) {
        self.step = step;
        (self.progress)(step);
    }

    /// Notes that the time is over. Revisions that were not offered are no loss.
    pub(super) fn note_timeout(&mut self) {
        self.report.unfinished = Some(self.step);
        let finding = match self.step {
            Step::Open => findings::silent(self.peer.is_url()),
            Step::Versions => return,
            step => findings::out_of_time(step),
        };
        self.report.findings.push(finding);
    }

    /// Takes all steps.
    pub(super) async fn run(&mut self) {
        self.begin(Step::Open);
        let Some((session, heard)) = self.open_any().await else {
            return;
        };
        self.note_opened(&session, &heard);
        self.note_signed_in();
        // From here on it is ended whatever happens.
        self.open.push(session);
        self.confirm().await;
        self.begin(Step::Ping);
        self.ping().await;
        self.begin(Step::List);
        self.list().await;
        self.report.findings.extend(self.known.finding());
        if self.peer.is_streamable() {
            self.begin(Step::Stream);
            self.stream().await;
            self.begin(Step::UnknownId);
            self.try_unknown_id().await;
            self.begin(Step::End);
            self.end_first().await;
        }
        self.begin(Step::Era);
        self.era().await;
        self.begin(Step::Versions);
        self.offer_rest().await;
        self.end_all().await;
    }

    /// Opens a session with the newest revision that the server accepts.
    async fn open_any(&mut self) -> Option<(Opened, Heard)> {
        let mut offers = OFFERS.into_iter();
        while let Some(offered) = offers.next() {
            match self.open(offered).await {
                Ok(opened) => return Some(opened),
                Err(trouble) if self.turns_to_sse(&trouble).await => {
                    self.report.versions.clear();
                    offers = OFFERS.into_iter();
                }
                // A server may refuse a revision that it does not know, although it should answer another.
                Err(Trouble::Refused(refusal))
                    if refusal.code.is_some() && offered != OFFERS[3] =>
                {
                    self.report.versions.push(Offer {
                        offered,
                        answered: None,
                    });
                }
                Err(trouble) => {
                    self.not_opened(trouble).await;
                    return None;
                }
            }
        }
        None
    }

    /// Offers a revision, and notes what it answers.
    async fn open(&mut self, offered: &'static str) -> Result<(Opened, Heard), Trouble> {
        let params = format!(
            r#"{{"protocolVersion":"{offered}","capabilities":{{}},"clientInfo":{{"name":"bowline-probe","version":"{}"}}}}"#,
            env!("CARGO_PKG_VERSION"),
        );
        let asked = self.peer.request("initialize", Some(&params))?;
        let mut opened = self.peer.unopened();
        let answered = self.peer.open(&asked, &mut opened).await;
        let version = answered.and_then(|heard| match heard.message.initialized() {
            Some(result) => Ok((
                Agreed::on(&result.version),
                result.version.into_owned(),
                heard,
            )),
            None => Err(Trouble::Malformed(
                "answered `initialize` without a protocol version",
            )),
        });
        let (agreed, answered, heard) = match version {
            Ok(answered) => answered,
            Err(trouble) => {
                self.open.push(opened);
                return Err(trouble);
            }
        };
        opened.version = agreed;
        self.report.versions.push(Offer {
            offered,
            answered: Some(shortened(&answered)),
        });
        Ok((opened, heard))
    }

    fn note_opened(&mut self, session: &Opened, heard: &Heard) {
        let is_streamable = self.peer.is_streamable();
        let report = &mut self.report;
        report.transport = Some(self.peer.transport());
        let url = self.peer.endpoint.address.url();
        if let Some(url) = url.filter(|_| is_streamable) {
            let place = CookieUrl {
                https: url.origin.https,
                host: url.origin.host(),
                path: url.target.path(),
            };
            let jar = session
                .conversation
                .jar()
                .map(|jar| jar.lock().header(place));
            report.cookies = cookies::read(&heard.headers, jar.flatten().as_ref());
            report.sessions = Some(Sessions {
                has_ids: session.has_id(),
                ..Sessions::default()
            });
            report.streams = Some(Streams {
                answers_with_events: heard.is_events,
                has_event_ids: heard.has_event_ids,
                ..Streams::default()
            });
        }
        let result = heard
            .message
            .result()
            .map(serde_json::from_str::<InitializeResult>);
        let Some(Ok(result)) = result else {
            report.findings.push(findings::malformed_initialize());
            return;
        };
        let names = result.capabilities.keys().take(MAX_NAMES);
        report.capabilities = names.map(|name| shortened(name)).collect();
        report.server_info = result.server_info.map(|info| ServerInfo {
            name: shortened(&info.name),
            version: shortened(&info.version),
        });
        if report.server_info.is_none() {
            report.findings.push(findings::no_server_info());
        }
        let version = result.protocol_version;
        if !OFFERS.contains(&version.as_str()) {
            report
                .findings
                .push(findings::odd_version(&shortened(&version)));
        }
    }

    /// Says that the session is in use.
    async fn confirm(&mut self) {
        let Some(session) = self.open.last() else {
            return;
        };
        let telling = self.peer.tell(session, "notifications/initialized");
        if let Err(trouble) = limited(telling).await {
            let finding = findings::not_confirmed(&trouble.to_string());
            self.report.findings.push(finding);
        }
    }

    async fn ping(&mut self) {
        let mut took = Vec::new();
        let mut failed = None;
        for _ in 0..PINGS {
            let began = Instant::now();
            match self.ask("ping", None).await {
                Ok(_) => took.push(began.elapsed()),
                Err(trouble) => {
                    failed = Some(trouble);
                    break;
                }
            }
        }
        took.sort_unstable();
        let median = took.get(took.len() / 2).copied();
        self.report.ping = Some(Pings {
            sent: took.len() + usize::from(failed.is_some()),
            answered: took.len(),
            median_ms: median.map(|it| (it.as_secs_f64() * 1e5).round() / 100.0),
        });
        if let Some(trouble) = failed {
            let finding = findings::ping_failed(&trouble.to_string());
            self.report.findings.push(finding);
        }
    }

    async fn list(&mut self) {
        let has = |report: &Report, name: &str| report.capabilities.iter().any(|it| it == name);
        if has(&self.report, "tools") {
            self.report.tools = Some(self.listing("tools/list", "tools").await);
        }
        if has(&self.report, "prompts") {
            self.report.prompts = Some(self.listing("prompts/list", "prompts").await);
        }
        if has(&self.report, "resources") {
            self.report.resources = Some(self.listing("resources/list", "resources").await);
        }
    }

    /// Counts what a list has, page by page.
    async fn listing(&mut self, method: &str, member: &str) -> Listing {
        let mut listing = Listing::default();
        let mut cursor: Option<String> = None;
        loop {
            if listing.pages >= MAX_PAGES {
                listing.has_more = true;
                return listing;
            }
            let params = cursor.map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let heard = match self.ask(method, params.as_deref()).await {
                Ok(heard) => heard,
                Err(trouble) => {
                    listing.error = Some(trouble.to_string());
                    return listing;
                }
            };
            if let Some(streams) = &mut self.report.streams {
                streams.answers_with_events |= heard.is_events;
                streams.has_event_ids |= heard.has_event_ids;
            }
            let message = &heard.message;
            let items = message.result_member(member).map(|span| message.text(span));
            let items = items.and_then(|it| serde_json::from_str::<Vec<IgnoredAny>>(it).ok());
            let Some(items) = items else {
                listing.error = Some(format!("the server's answer has no list of {member}"));
                return listing;
            };
            listing.pages += 1;
            listing.count += items.len();
            if member == "tools" {
                let safe = message.result().and_then(count_safe).unwrap_or_default();
                *listing.safe_to_repeat.get_or_insert_default() += safe;
            }
            let next = message
                .result_member("nextCursor")
                .map(|span| message.text(span));
            match next.filter(|it| *it != "null") {
                Some(next) => cursor = Some(next.to_owned()),
                None => return listing,
            }
        }
    }

    /// Sends a request on the first session.
    async fn ask(&mut self, method: &str, params: Option<&str>) -> Result<Heard, Trouble> {
        let asked = self.peer.request(method, params)?;
        let session = self.open.last().ok_or(UpstreamError::SessionLost)?;
        let answered = limited(self.peer.ask(session, &asked)).await;
        self.known.note(answered.as_ref().err());
        answered
    }

    /// Offers the revisions that were not offered yet, each on a session of its own.
    async fn offer_rest(&mut self) {
        for offered in OFFERS {
            if self.report.versions.iter().any(|it| it.offered == offered) {
                continue;
            }
            match limited(self.open(offered)).await {
                Ok((opened, _)) => self.open.push(opened),
                Err(Trouble::Refused(_)) => self.report.versions.push(Offer {
                    offered,
                    answered: None,
                }),
                Err(_) => {}
            }
            self.end_all().await;
        }
    }

    /// Ends all sessions that are open.
    pub(super) async fn end_all(&mut self) {
        while let Some(session) = self.open.pop() {
            if session.conversation.can_be_ended() {
                let link = self.peer.link(&session);
                // Nobody can do anything about one that does not end.
                drop(tokio::time::timeout(REQUEST_LIMIT, self.peer.upstream.end(link)).await);
            }
        }
    }

    /// Ends the first session, and looks at the server's answers.
    async fn end_first(&mut self) {
        let Some(session) = self.open.pop().filter(Opened::has_id) else {
            return;
        };
        let deleted = limited(self.peer.send(&session, Method::DELETE)).await;
        let status = match &deleted {
            Ok(answer) => Some(answer.status),
            Err(trouble) => trouble.status(),
        };
        let after = match self.peer.request("ping", None) {
            Ok(asked) => limited(self.peer.ask(&session, &asked)).await,
            Err(trouble) => Err(trouble),
        };
        let after = after.map_or_else(|it| it.status(), |_| Some(http::StatusCode::OK));
        if let Some(sessions) = &mut self.report.sessions {
            sessions.delete_status = status.map(|it| it.as_u16());
            sessions.after_delete_status = after.map(|it| it.as_u16());
        }
    }
}

/// A request that may not take all the time that is left.
pub(super) async fn limited<T>(
    asking: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    tokio::time::timeout(REQUEST_LIMIT, Box::pin(asking))
        .await
        .unwrap_or(Err(Trouble::Silent(REQUEST_LIMIT)))
}
