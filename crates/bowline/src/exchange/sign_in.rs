//! Sign-in during a request: the client is prompted in the way that it supports, and the request continues
//! after the sign-in.
//!
//! A client that declared elicitation is prompted on the stream of the request itself, which is held for a
//! while. Any other client gets a tool `sign_in`, whose result is the link, and errors that contain the link.

pub(crate) mod answer;
pub(crate) mod prompt;
mod words;

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::message::{Message, RawId, RawIdBuf};
use bowline_wire::sse::Event;
use bowline_wire::{codes, compose, version};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use self::answer::Elicited;
use self::prompt::{mark, question, withdrawn};
use self::words::{error, not_yet, signed_in, told, told_body, try_later, why};
use crate::exchange::call;
use crate::exchange::leaving::{Departure, Leaving};
use crate::exchange::outlet::Outlet;
use crate::exchange::own_tool::is_own_tool;
use crate::exchange::reader::Reader;
use crate::exchange::reply;
use crate::exchange::rescue::Rescue;
use crate::exchange::send::Request;
use crate::exchange::stream::{LiveStream, Source};
use crate::exchange::{Exchange, Reply, stream_key};
use crate::fault::Fault;
use crate::oauth::{
    Account, Flow, FlowId, FlowOutcome, Flows, Prompt, SignInError, SignInReason, Useless,
};
use crate::registry::Registry;
use crate::session::{Call, Session};
use crate::upstream::{Carried, UpstreamError};
use bowline_egress::Sent;

/// How a client can be prompted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// With a URL elicitation: a link that its user opens.
    Link,
    /// With a form elicitation.
    Form,
    /// Not at all: Bowline opens a browser itself.
    Browser,
    /// It declared no elicitation: only with the tool and with errors.
    Words,
}

/// How long lists are held before the first sign-in: editors give up on a server that does not list its tools,
/// and then nobody waits for the browser.
const LISTS_HELD: Duration = Duration::from_secs(20);

/// A request that waits for a sign-in.
struct Wait {
    registry: Arc<Registry>,
    session: Arc<Session>,
    account: Arc<Account>,
    message: Message,
    call: Arc<Call>,
    carried: Carried,
    leaving: Leaving,
    begun: Instant,
    /// The request is held until then, however many prompts that takes.
    until: Instant,
}

/// Starts or joins the sign-in that `message` needs, and prompts for it.
pub(crate) async fn ask(
    exchange: Exchange,
    message: Message,
    wanted: Arc<SignInReason>,
) -> Result<Reply, Fault> {
    let session = Arc::clone(exchange.in_use.session());
    let Some(account) = session.upstream.account(&session.caller) else {
        return Err(Fault::on(&session.leg(), UpstreamError::SignIn(wanted)));
    };
    if message.method() == Some("ping") {
        // A client that only looks whether anybody is there asks nobody to sign in.
        return Ok(told(&session, &message, None, ""));
    }
    let flows = Arc::clone(&account.flows);
    if is_own_tool(&message)
        && let Err(error) = flows.ask_again(&account).await
    {
        tracing::debug!(%error, "declined sign-in could not be reset");
    }
    let server = session.upstream.config();
    let call = Call::begin(&session, message.id().unwrap_or_default());
    let begun = tokio::select! {
        biased;
        () = call.cancelled() => return Err(Fault::on(&session.leg(), UpstreamError::Cancelled)),
        begun = flows.begin(&account, &server, &wanted) => begun,
    };
    drop(call);
    let flow = match begun {
        Ok(flow) => flow,
        Err(error) => {
            let server = &session.upstream.name;
            tracing::info!(session = %session.hash, %server, %error, "sign-in not started");
            return Ok(told(&session, &message, None, &error.to_string()));
        }
    };
    let (means, link) = (Means::of(&session, &flows, &flow), flow.link());
    if means == Means::Words || (is_own_tool(&message) && link.is_some()) {
        return Ok(told(&session, &message, link.as_deref(), why(&flow)));
    }
    hold(exchange, message, account, &flow)
}

/// Replies with a stream that begins with the prompt and ends with the response.
fn hold(
    exchange: Exchange,
    message: Message,
    account: Arc<Account>,
    flow: &Flow,
) -> Result<Reply, Fault> {
    let departure = exchange.departure();
    let Exchange {
        registry,
        in_use,
        carried,
        leaving,
        ..
    } = exchange;
    let session = Arc::clone(in_use.session());
    let place = session.stream_place().map_err(Fault::TooManyStreams)?;
    let key = stream_key(&message);
    let hold = account.flows.settings().hold;
    let is_browser = Means::of(&session, &account.flows, flow) == Means::Browser;
    let hold = match is_browser && is_first_list(&session, &message) {
        true => hold.min(LISTS_HELD),
        false => hold,
    };
    let begun = Instant::now();
    let call = Call::begin(&session, message.id().unwrap_or_default());
    let rescue = Rescue::request(
        &session,
        carried.clone(),
        message.clone(),
        Arc::clone(&call),
    );
    let wait = Wait {
        registry,
        session: Arc::clone(&session),
        begun,
        until: begun + hold,
        account,
        message,
        call,
        carried,
        leaving,
    };
    let stream = Arc::new(LiveStream::new(wait.on(flow)));
    session.attach(key, &stream);
    let reader = Reader::new(stream, in_use, Some(place), Some(Box::new(rescue)));
    Ok(Reply::Stream(Outlet::events(reader, departure)))
}

// === impl Wait ===

impl Wait {
    /// The client's stream while it waits for this flow: the prompt, unless another request of the session
    /// shows it already, and then the outcome.
    fn on(self, flow: &Flow) -> Source {
        let flows = &self.account.flows;
        let means = Means::of(&self.session, flows, flow);
        let link = flow.link();
        if means == Means::Words {
            let id = self.message.id().unwrap_or_default();
            let body = error(id, codes::SIGN_IN_NEEDED, why(flow), link.as_deref());
            return Source::last(Event::of_message(body));
        }
        let request = self.message.id().unwrap_or_default();
        let prompt = match means {
            Means::Browser => None,
            _ => Some(
                flows
                    .prompts
                    .open(self.session.hash, flow, request.as_str()),
            ),
        };
        let is_carried = prompt.as_ref().is_some_and(Prompt::is_carried);
        let mark = is_carried.then(|| mark(&self.session, flow, request));
        let mark = mark.flatten();
        let question = mark
            .as_ref()
            .map(|mark| question(flows, flow, means, mark.as_id()));
        let rest = Source::opening(self.through(flow.clone(), means, prompt, mark));
        match question {
            Some(question) => rest.preceded_by(Event::of_message(question)),
            None => rest,
        }
    }

    async fn through(
        self,
        flow: Flow,
        means: Means,
        prompt: Option<Prompt>,
        mark: Option<RawIdBuf>,
    ) -> Result<Source, UpstreamError> {
        let flows = Arc::clone(&self.account.flows);
        let id = self.message.id().unwrap_or_default().to_buf();
        let call = Arc::clone(&self.call);
        let needed = |why: &str, link: Option<&str>| {
            let body = error(id.as_id(), codes::SIGN_IN_NEEDED, why, link);
            Source::last(Event::of_message(body))
        };
        let useless = async {
            match &prompt {
                Some(prompt) => prompt.useless().await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            biased;
            () = call.cancelled() => return Ok(Source::Ended),
            end = flows.wait(&flow) => end,
            why = useless => return Ok(needed(&why.to_string(), flow.link().as_deref())),
            () = tokio::time::sleep_until(self.until) => {
                if let Some(prompt) = prompt {
                    prompt.keep();
                }
                if means == Means::Link {
                    notify_when_done(&self.session, &flows, &flow);
                }
                let why = not_yet(flows.had_stray_since(self.begun));
                let body = match means {
                    Means::Browser => {
                        told_body(&self.session, &self.message, flow.link().as_deref(), why)
                    }
                    _ => try_later(id.as_id(), &flow, means, why),
                };
                return Ok(Source::last(Event::of_message(body)));
            }
        };
        let withdrawn = prompt.zip(mark).and_then(|(prompt, mark)| {
            let withdrawn = prompt.is_open().then(|| withdrawn(mark.as_id()));
            prompt.keep();
            withdrawn
        });
        let rest = match end {
            Some(FlowOutcome::SignedIn) => self.resume().await,
            Some(FlowOutcome::Declined { said }) => {
                needed(&SignInError::Declined { said }.to_string(), None)
            }
            Some(FlowOutcome::Failed(why)) => needed(&why, None),
            None => match self.account.current_flow().await {
                Ok(Some(next)) => self.on(&next),
                Ok(None) => self.resume().await,
                Err(error) => needed(&error.to_string(), None),
            },
        };
        Ok(match withdrawn {
            Some(withdrawn) => rest.preceded_by(Event::of_message(withdrawn)),
            None => rest,
        })
    }

    /// Sends the request after the sign-in.
    async fn resume(self) -> Source {
        let Self {
            registry,
            session,
            message,
            call,
            carried,
            leaving,
            ..
        } = self;
        let id = message.id().map(RawId::to_buf);
        if is_own_tool(&message) {
            let body = signed_in(message.id().unwrap_or(RawId::NULL), &session);
            return Source::last(Event::of_message(body));
        }
        let (own, sent) = (Arc::clone(&session), Sent::default());
        let request_sent = sent.clone();
        let sending = async move {
            call::answer(Request {
                session: &own,
                message,
                call,
                carried: &carried,
                sent: request_sent,
            })
            .await
        };
        let departure = Departure::of(leaving, &registry, &session);
        let reply = departure.watch(sending, sent).await;
        match reply {
            Ok(reply::Reply::Accepted) => Source::Ended,
            Ok(reply) => match reply.into_source().await {
                Ok(source) => source,
                Err(error) => failed(&session, error, id.as_ref()),
            },
            Err(error) => failed(&session, error, id.as_ref()),
        }
    }
}

/// Whether this lists what the server has, before the session was ever opened there.
fn is_first_list(session: &Session, message: &Message) -> bool {
    let method = message.method();
    session.leg().generation.is_unopened() && method.is_some_and(|method| method.ends_with("/list"))
}

fn failed(session: &Session, error: UpstreamError, id: Option<&RawIdBuf>) -> Source {
    let fault = Fault::on(&session.leg(), error);
    Source::fault(&fault, id.map(RawIdBuf::as_id))
}

/// Notifies the client once when the sign-in is complete.
fn notify_when_done(session: &Arc<Session>, flows: &Arc<Flows>, flow: &Flow) {
    if !flows.prompts.promise_completion(session.hash, flow) {
        return;
    }
    let (session, flows, flow) = (Arc::clone(session), Arc::clone(flows), flow.clone());
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        if flows.wait(&flow).await == Some(FlowOutcome::SignedIn) {
            let params = json!({"elicitationId": flow.id.as_str()});
            let done = compose::notification("notifications/elicitation/complete", params);
            session.tell(Event::of_message(done));
        }
    });
}

/// Handles the client's response to a prompt.
pub(crate) async fn answered(session: &Session, id: RawId<'_>, answer: &Message) {
    let asked = id.as_str().split_at_checked(FlowId::LENGTH);
    let asked = asked.and_then(|(flow, request)| Some((FlowId::parse(flow)?, request)));
    let account = session.upstream.account(&session.caller);
    let (Some((flow, request)), Some(account)) = (asked, account) else {
        return;
    };
    let elicited = match answer.result().map(serde_json::from_str::<Elicited>) {
        Some(Ok(elicited)) => elicited.take(session, &account, &flow).await,
        useless => {
            let why = match useless {
                None => Useless::Error,
                Some(_) => Useless::Malformed,
            };
            let flows = &account.flows;
            flows.prompts.fail(session.hash, &flow, Some(request), why);
            Err(why.into())
        }
    };
    if let Err(error) = elicited {
        tracing::info!(%error, ?flow, "response to a sign-in prompt rejected");
    }
}

// === impl Means ===

impl Means {
    /// What the client declared and the flow can use.
    fn of(session: &Session, flows: &Flows, flow: &Flow) -> Self {
        if flow.authorization().is_some() && flows.opens_browser() {
            return Self::Browser;
        }
        #[derive(Deserialize)]
        struct Initialize {
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            capabilities: Capabilities,
        }
        #[derive(Deserialize)]
        struct Capabilities {
            elicitation: Option<Elicitation>,
        }
        #[derive(Deserialize)]
        struct Elicitation {
            form: Option<serde::de::IgnoredAny>,
            url: Option<serde::de::IgnoredAny>,
        }
        let declared = serde_json::from_slice::<Initialize>(&session.client_state.initialize).ok();
        let Some(declared) = declared.and_then(|it| it.params.capabilities.elicitation) else {
            return Self::Words;
        };
        // Without either member it means forms: they came first, in 2025-06-18.
        let has_form = declared.form.is_some() || declared.url.is_none();
        let [.., with_links] = version::SUPPORTED;
        let has_link = declared.url.is_some() && session.leg().version() >= with_links;
        let has_authorization = flow.authorization().is_some();
        match (has_link && has_authorization, has_form) {
            (true, _) => Self::Link,
            (false, true) => Self::Form,
            (false, false) => Self::Words,
        }
    }
}
