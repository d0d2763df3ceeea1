//! A request whose caller has to sign in: its client is asked in the way that it can be, and the
//! request goes on once somebody has.
//!
//! A client that declared elicitation is asked on the stream of the very request that needs it, which
//! is held for a while. One that did not is told in words: by a tool `sign_in`, whose result is the
//! link, and by an error that has it.

pub(crate) mod answer;
pub(crate) mod prompt;
mod words;

use std::sync::Arc;

use bowline_wire::compose;
use bowline_wire::message::Message;
use bowline_wire::sse::event_of;
use bowline_wire::version;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use self::answer::Elicited;
use self::prompt::{mark, question, withdrawn};
use self::words::{come_back, error, is_own_tool, signed_in, told, why};
use crate::exchange::detach::{Abandoned, detachable};
use crate::exchange::reply::{Arriving, Reply};
use crate::exchange::send::request;
use crate::exchange::stream::outlet::Outlet;
use crate::exchange::stream::relay::Relay;
use crate::exchange::stream::rescue::whole;
use crate::exchange::stream::{LiveStream, Source};
use crate::exchange::{Exchange, stream_key};
use crate::fault::{Fault, codes};
use crate::oauth::{Account, Flow, FlowId, FlowOutcome, Flows, Prompt, SignInError, SignInReason};
use crate::registry::Registry;
use crate::session::{Call, Session};
use crate::upstream::{Carried, UpstreamError};
use bowline_egress::Sent;

/// How a client said that it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// With a link, which its user opens.
    Link,
    /// With a form.
    Form,
    /// Not at all.
    Words,
}

/// A request that waits for somebody to sign in.
struct Wait {
    registry: Arc<Registry>,
    session: Arc<Session>,
    account: Arc<Account>,
    message: Message,
    carried: Carried,
    /// How long it is held, whatever number of questions that takes.
    until: Instant,
}

/// AwaitedInput for the sign-in that `message` needs.
pub(crate) async fn ask(
    exchange: Exchange,
    message: Message,
    wanted: Arc<SignInReason>,
) -> Result<Reply, Fault> {
    let session = Arc::clone(exchange.in_use.session());
    let Some(account) = session.upstream.account(&session.caller) else {
        return Err(Fault::on(&session.leg(), UpstreamError::SignIn(wanted)));
    };
    let flows = Arc::clone(&account.flows);
    if is_own_tool(&message)
        && let Err(error) = flows.ask_again(&account).await
    {
        tracing::debug!(%error, "a declined sign-in is still remembered");
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
        Err(error) => return Ok(told(&session, &message, None, &error.to_string())),
    };
    let (means, link) = (Means::of(&session, &flow), flow.link());
    if means == Means::Words || (is_own_tool(&message) && link.is_some()) {
        return Ok(told(&session, &message, link.as_deref(), why(&flow)));
    }
    held(exchange, message, account, &flow)
}

/// The request's answer as a stream that begins with the question and ends with the answer.
fn held(
    exchange: Exchange,
    message: Message,
    account: Arc<Account>,
    flow: &Flow,
) -> Result<Reply, Fault> {
    let Exchange {
        registry,
        in_use,
        carried,
        ..
    } = exchange;
    let session = Arc::clone(in_use.session());
    let place = session.stream_place().map_err(Fault::TooManyStreams)?;
    let key = stream_key(&message);
    let abandoned = Abandoned::of(&registry, &session);
    let wait = Wait {
        registry,
        session: Arc::clone(&session),
        until: Instant::now() + account.flows.settings().hold,
        account,
        message,
        carried,
    };
    let stream = Arc::new(LiveStream::new(wait.on(flow), None));
    session.attach(key, &stream);
    Ok(Reply::Stream(Outlet::events(
        stream,
        in_use,
        abandoned,
        Some(place),
    )))
}

// === impl Wait ===

impl Wait {
    /// What the client hears while it waits for this flow: the question, if nobody else in the session
    /// asks it, and then what came of it.
    fn on(self, flow: &Flow) -> Source {
        let flows = &self.account.flows;
        let means = Means::of(&self.session, flow);
        let link = flow.link();
        if means == Means::Words {
            let id = self.message.id().unwrap_or_default();
            let told = error(id, codes::SIGN_IN_NEEDED, why(flow), link.as_deref());
            return Source::Last(event_of(told.as_bytes()));
        }
        let asking = flows.open_prompt(self.session.hash, flow);
        let asking = asking.and_then(|asking| {
            let request = self.message.id().unwrap_or_default();
            let mark = mark(&self.session, flow, request)?;
            Some((asking, mark))
        });
        let question = asking
            .as_ref()
            .map(|(_, mark)| question(flows, flow, means, mark));
        let rest = Source::opening(self.through(flow.clone(), means, asking));
        match question {
            Some(question) => Source::Saying(event_of(question.as_bytes()), Box::new(rest)),
            None => rest,
        }
    }

    async fn through(
        self,
        flow: Flow,
        means: Means,
        asking: Option<(Prompt, String)>,
    ) -> Result<Source, UpstreamError> {
        let flows = Arc::clone(&self.account.flows);
        let id = self.message.id().unwrap_or_default().to_owned();
        let call = Call::begin(&self.session, &id);
        let needed = |why: &str| {
            let told = error(&id, codes::SIGN_IN_NEEDED, why, None);
            Source::Last(event_of(told.as_bytes()))
        };
        let end = tokio::select! {
            biased;
            () = call.cancelled() => return Ok(Source::Ended),
            end = flows.wait(&flow) => end,
            () = tokio::time::sleep_until(self.until) => {
                if let Some((asking, _)) = asking {
                    asking.keep();
                }
                if means == Means::Link {
                    tell_when_done(&self.session, &flows, &flow);
                }
                let told = come_back(&id, &flow, means);
                return Ok(Source::Last(event_of(told.as_bytes())));
            }
        };
        drop(call);
        let withdrawn = asking.and_then(|(asking, mark)| {
            let withdrawn = asking.is_open().then(|| withdrawn(&mark));
            asking.keep();
            withdrawn
        });
        let rest = match end {
            Some(FlowOutcome::SignedIn) => self.go_on().await,
            Some(FlowOutcome::Declined { said }) => {
                needed(&SignInError::Declined { said }.to_string())
            }
            Some(FlowOutcome::Failed(why)) => needed(&why),
            None => match self.account.current_flow().await {
                Ok(Some(next)) => self.on(&next),
                Ok(None) => self.go_on().await,
                Err(error) => needed(&error.to_string()),
            },
        };
        Ok(match withdrawn {
            Some(withdrawn) => Source::Saying(event_of(withdrawn.as_bytes()), Box::new(rest)),
            None => rest,
        })
    }

    /// The request, now that somebody has signed in.
    async fn go_on(self) -> Source {
        let Self {
            registry,
            session,
            message,
            carried,
            ..
        } = self;
        let id: Option<Box<str>> = message.id().map(Into::into);
        if is_own_tool(&message) {
            let told = signed_in(id.as_deref().unwrap_or("null"), &session);
            return Source::Last(event_of(told.as_bytes()));
        }
        let (own, sent) = (Arc::clone(&session), Sent::default());
        let leaves = sent.clone();
        let asking = async move { request(&own, message, &carried, leaves).await };
        let abandoned = Abandoned::of(&registry, &session);
        let reply = detachable(asking, sent, abandoned).await;
        match reply {
            Ok(Reply::Stream(Arriving {
                relay: relay @ Relay::Events(_),
                rescue,
                ..
            })) => match rescue {
                Some(rescue) => Source::Rescuable(relay, rescue),
                None => Source::Relay(relay),
            },
            Ok(Reply::Events(events)) => Source::Last(events),
            Ok(Reply::Message { body, .. }) => Source::Last(event_of(&body)),
            Ok(Reply::Accepted | Reply::Batch(_)) => Source::Ended,
            Ok(Reply::Stream(Arriving { relay, .. })) => match whole(relay).await {
                Ok(body) => Source::Last(event_of(&body)),
                Err(error) => failed(&session, error.into(), id.as_deref()),
            },
            Err(error) => failed(&session, error, id.as_deref()),
        }
    }
}

fn failed(session: &Session, error: UpstreamError, id: Option<&str>) -> Source {
    let told = Fault::on(&session.leg(), error).body(id);
    Source::Last(event_of(told.as_bytes()))
}

/// Tells the client when it may come back, once.
fn tell_when_done(session: &Arc<Session>, flows: &Arc<Flows>, flow: &Flow) {
    if !flows.promise_completion(session.hash, flow) {
        return;
    }
    let (session, flows, flow) = (Arc::clone(session), Arc::clone(flows), flow.clone());
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        if flows.wait(&flow).await == Some(FlowOutcome::SignedIn) {
            let params = json!({"elicitationId": flow.id.as_str()});
            let done = compose::notification("notifications/elicitation/complete", params);
            session.tell(&event_of(done.as_bytes()));
        }
    });
}

/// Takes the client's answer to a question of ours.
pub(crate) async fn answered(session: &Session, id: &str, answer: &Message) {
    let (Some(flow), Some(account)) = (
        id.get(..FlowId::LENGTH).and_then(FlowId::parse),
        session.upstream.account(&session.caller),
    ) else {
        return;
    };
    // An error is no answer: the question is still open until it is too late.
    let Some(Ok(elicited)) = answer.result().map(serde_json::from_str::<Elicited>) else {
        return;
    };
    if let Err(error) = elicited.take(session, &account, &flow).await {
        tracing::info!(%error, ?flow, "the answer to a sign-in was not taken");
    }
}

// === impl Means ===

impl Means {
    /// What the client declared, and the flow can use.
    fn of(session: &Session, flow: &Flow) -> Self {
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
        // Without either it means forms, which were there first.
        let has_form = declared.form.is_some() || declared.url.is_none();
        let has_link = declared.url.is_some() && session.leg().version() >= version::SUPPORTED[2];
        let is_a_way = flow.authorization().is_some();
        match (has_link && is_a_way, has_form) {
            (true, _) => Self::Link,
            (false, true) => Self::Form,
            (false, false) => Self::Words,
        }
    }
}
