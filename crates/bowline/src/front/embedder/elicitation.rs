//! The answer to an elicitation of a session, from the program that runs its client's dialogs. The session is named by
//! its id, or by the hash that the program learns when the session opens.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Sent;
use bowline_system::clock;
use bowline_wire::id::SessionId;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use crate::exchange::sign_in::answer::{AnswerError, Effect, Elicited};
use crate::fault::Fault;
use crate::front::access::require_api_token;
use crate::front::body::whole_body;
use crate::front::response::{self, ReplyBody, no_store};
use crate::hub::Hub;
use crate::net::Peer;
use crate::oauth::{Account, DeliveryError, Flow, FlowId};
use crate::peers::{ForwardKind, PeerError, Record, unexpected};
use crate::session::Session;
use crate::telemetry::SessionHash;

/// The largest answer that is read.
const MAX_ANSWER: usize = 256 * 1024;

/// How long another gateway may take to answer. It may have to exchange a code.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// An answer as it is posted.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(flatten)]
    elicited: Elicited,
    elicitation_id: Option<String>,
}

/// The session whose elicitation is answered at this path, by its hash or its id.
pub(super) fn session_of(path: &str) -> Option<&str> {
    let session = path.strip_prefix("/api/sessions/")?;
    session.strip_suffix("/elicitation")
}

/// The hash of a session that is named by its hash or its id.
fn hash_of(session: &str) -> String {
    let id = HeaderValue::try_from(session).ok();
    let id = id.as_ref().and_then(SessionId::from_header);
    id.map_or_else(|| session.to_owned(), |id| SessionHash::of(&id).to_string())
}

/// Answers an elicitation of a session.
pub(super) async fn answer(
    hub: &Hub,
    head: &Parts,
    body: Incoming,
    peer: Peer,
    session: &str,
) -> Result<Response<ReplyBody>, Fault> {
    require_api_token(hub, &head.headers, peer)?;
    if head.method != Method::POST {
        return Err(Fault::Method { allow: "POST" });
    }
    let body = whole_body(body, MAX_ANSWER).await?;
    let hash = hash_of(session);
    let sessions = sessions(hub, &hash);
    let result = match sessions.is_empty() {
        false => take(&sessions, &body).await?,
        true => elsewhere(hub, &hash, &body).await?,
    };
    Ok(no_store(response::json(StatusCode::OK, result)))
}

/// The session in this gateway's memory that has a hash, or those of the attachment that has it, as far as their caller
/// may use them.
pub(in crate::front) fn sessions(hub: &Hub, hash: &str) -> Vec<Arc<Session>> {
    let has_it = |session: &Session| session.hash.to_string() == hash;
    let mut found = match hub.unions.sessions_of(hash) {
        Some(members) => members,
        None => hub.registry.table.those(has_it),
    };
    found.retain(|session| session.is_permitted());
    found
}

/// Gives the answer to the one of these sessions whose elicitation it names. It may name none only where there is one
/// server: among several, the one that waits now need not be the one that was meant.
pub(in crate::front) async fn take(
    sessions: &[Arc<Session>],
    body: &Bytes,
) -> Result<String, Fault> {
    let Answer {
        elicited,
        elicitation_id,
    } = serde_json::from_slice(body).map_err(|_| Fault::NoAnswer)?;
    let id = elicitation_id
        .map(|id| FlowId::parse(&id).ok_or(Fault::NoSuchQuestion))
        .transpose()?;
    let is_of_union = |session: &Arc<Session>| session.leg().generation.is_of_member();
    if id.is_none() && sessions.iter().any(is_of_union) {
        return Err(Fault::SeveralQuestions);
    }
    for session in sessions {
        let Some(account) = session.upstream.account(&session.caller) else {
            continue;
        };
        let flow = account.current_flow().await.map_err(Fault::from)?;
        let is_meant = |flow: &Flow| {
            flow.is_open(clock::unix_seconds()) && id.as_ref().is_none_or(|id| flow.id == *id)
        };
        if let Some(flow) = flow.filter(is_meant) {
            return answer_one(session, &account, &flow.id, elicited).await;
        }
    }
    Err(Fault::NoSuchQuestion)
}

/// Asks the other gateways for the session. Whoever has it takes the answer.
async fn elsewhere(hub: &Hub, hash: &str, body: &Bytes) -> Result<String, Fault> {
    let peers = hub.peers.as_ref().ok_or(Fault::NoSuchSession)?;
    let owners = &hub.channels.owners;
    let mut unreachable = None;
    for other in owners.others() {
        let sent = Sent::default();
        let kind = ForwardKind::Elicitation;
        let asking = async {
            let mut answer = peers
                .forward(owners, &other, kind, &hash, body, sent)
                .await?;
            match answer.next().await? {
                Record::Whole(_) => answer.whole().await,
                Record::End(ending) => Err(PeerError::of(ending)),
                _ => Err(unexpected()),
            }
        };
        let asked = tokio::time::timeout(ASKED_WITHIN, asking).await;
        match asked.unwrap_or(Err(PeerError::Silent(ASKED_WITHIN))) {
            Ok(result) => return Ok(String::from_utf8_lossy(&result).into_owned()),
            Err(PeerError::NotMine(_)) => {}
            Err(PeerError::Refused(reason)) => return Err(refusal(&reason)),
            Err(error) => unreachable = Some(error.to_string()),
        }
    }
    Err(match unreachable {
        Some(why) => Fault::PeerUnreachable(why.into()),
        None => Fault::NoSuchSession,
    })
}

/// What another gateway refused, by the name of the reason.
fn refusal(reason: &str) -> Fault {
    let faults = [
        Fault::NoAnswer,
        Fault::NoSuchQuestion,
        Fault::SeveralQuestions,
        Fault::WrongIssuer,
        Fault::Stopping,
    ];
    let mut faults = faults.into_iter();
    let found = faults.find(|fault| fault.row().name == reason);
    found.unwrap_or_else(|| Fault::PeerUnreachable(reason.into()))
}

/// Gives a session the answer to its elicitation.
async fn answer_one(
    session: &Session,
    account: &Account,
    flow: &FlowId,
    elicited: Elicited,
) -> Result<String, Fault> {
    let effect = elicited.take(session, account, flow).await;
    let result = match effect {
        Ok(Effect::Ended(end)) => end.name(),
        Ok(Effect::GoesOn) => "waiting",
        Err(AnswerError::Useless(why)) => {
            tracing::info!(error = %why, session = %session.hash, "response to a sign-in prompt rejected");
            return Err(Fault::NoSuchQuestion);
        }
        Err(AnswerError::Refused(refused)) => {
            return Err(match refused {
                DeliveryError::UnknownFlow => Fault::NoSuchQuestion,
                DeliveryError::IssuerMismatch => Fault::WrongIssuer,
                DeliveryError::Store(error) => error.into(),
                DeliveryError::Aborted => Fault::Stopping,
            });
        }
    };
    Ok(json!({"result": result}).to_string())
}
