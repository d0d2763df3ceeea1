//! The operator's choice of a server's tools (`tools` of `[servers.NAME]`): a list shows only those that are allowed,
//! and a call of another one does not reach the server.
//!
//! Names are compared as values, whatever escapes they are written with. A call that servers could read in two ways is
//! no message (`wire/src/message/readings.rs`). Clients differ as much: a list that can be read in two ways is not shown.
//! Servers without a filter cost one branch.

use std::sync::Arc;

use bowline_wire::batch;
use bowline_wire::members::Members;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::config::{Server, ToolFilter};
use crate::exchange::own_tool::is_own_tool;
use crate::exchange::tool_lesson::ToolLesson;
use crate::fault::Fault;
use crate::leg::Leg;
use crate::leg::rewrite::Content;
use crate::upstream::{MAX_BATCH, Upstream};

/// The filter of a server that has one, as it was when something was looked at.
#[derive(Debug)]
pub(crate) struct ActiveFilter(Arc<Server>);

/// A response as the client may see it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    AsItIs,
    Without(Bytes),
}

/// A list cannot be read in one way only.
#[derive(Debug, PartialEq, Eq)]
struct Unreadable;

/// Refuses a request or a notification that calls a tool which the operator does not allow, before it is sent on
/// this leg.
pub(crate) fn check_call(leg: &Leg, message: &Message) -> Result<(), Fault> {
    match ActiveFilter::of(&leg.upstream) {
        None => Ok(()),
        // Before a sign-in, the tool that a client sees is Bowline's own, and nothing is sent on this leg.
        Some(_) if leg.generation.is_unopened() && is_own_tool(message) => Ok(()),
        Some(filter) => filter.check_call(message),
    }
}

// === impl ActiveFilter ===

impl ActiveFilter {
    /// The server's filter, if it has one now.
    pub(crate) fn of(upstream: &Upstream) -> Option<Self> {
        match upstream.filters_tools() {
            false => None,
            true => Some(Self(upstream.config())).filter(|filter| filter.0.tools.is_some()),
        }
    }

    pub(crate) fn allows(&self, name: &str) -> bool {
        self.0.tools.as_ref().is_none_or(|tools| tools.allows(name))
    }

    #[cold]
    fn check_call(&self, message: &Message) -> Result<(), Fault> {
        let tools = self.0.tools.as_ref();
        match tools.is_none_or(|tools| may_send(tools, message)) {
            true => Ok(()),
            false => Err(Fault::ToolNotAllowed),
        }
    }

    /// A complete body that answers a request with this lesson.
    pub(crate) fn whole(
        &self,
        lesson: ToolLesson,
        body: Bytes,
        is_good: bool,
    ) -> Result<Bytes, Fault> {
        if !lesson.is_listing() {
            return Ok(body);
        }
        if batch::is_batch(&body) {
            let members = batch::split(&body, MAX_BATCH).map_err(|_| Fault::ToolsNotFiltered)?;
            let seen = members.iter().map(|raw| self.body(raw));
            let seen = seen.collect::<Result<Vec<_>, _>>();
            let seen = seen.map_err(|_| Fault::ToolsNotFiltered)?;
            return Ok([&b"["[..], &seen.join(&b","[..]), b"]"].concat().into());
        }
        match self.body(&body) {
            Ok(seen) => Ok(seen),
            // What is no answer at all is passed on with its status, which says so.
            Err(Unreadable) if !is_good && Message::from_server(body.clone()).is_err() => Ok(body),
            Err(Unreadable) => Err(Fault::ToolsNotFiltered),
        }
    }

    fn body(&self, raw: &Bytes) -> Result<Bytes, Unreadable> {
        let message = Message::from_server(raw.clone()).map_err(|_| Unreadable)?;
        Ok(match self.seen(&message)? {
            Seen::AsItIs => raw.clone(),
            Seen::Without(body) => body,
        })
    }

    /// The content of an event on a stream with this lesson; `None` if the client may see nothing of it.
    pub(crate) fn event(&self, lesson: ToolLesson, content: Content) -> Option<Content> {
        let shown = |message: Message| match self.seen(&message) {
            Ok(Seen::AsItIs) => message,
            Ok(Seen::Without(body)) => {
                Message::from_server(body).unwrap_or_else(|_| refusal(&message))
            }
            Err(Unreadable) => refusal(&message),
        };
        match content {
            Content::Message(message) => Some(Content::Message(shown(message))),
            Content::Batch(members) => {
                let members = members.into_iter();
                let readable = members.filter_map(|raw| Message::from_server(raw).ok());
                let members: Vec<_> = readable.map(|one| shown(one).raw().clone()).collect();
                (!members.is_empty()).then_some(Content::Batch(members))
            }
            // A client may find a list in it.
            Content::Other(data) if !data.is_empty() && lesson.may_be_listing() => None,
            other => Some(other),
        }
    }

    /// A response without the tools that are not allowed. Their definitions go, and nothing else changes.
    fn seen(&self, message: &Message) -> Result<Seen, Unreadable> {
        if message.kind() != Kind::Response {
            return Ok(Seen::AsItIs);
        }
        let envelope = Members::of_bytes(message.raw()).ok_or(Unreadable)?;
        let (Some(result), [_]) = (message.result(), &envelope.named("result")[..]) else {
            // An error, or several results.
            let has_result = !envelope.named("result").is_empty() && message.error().is_none();
            return if has_result {
                Err(Unreadable)
            } else {
                Ok(Seen::AsItIs)
            };
        };
        let Some(result) = Members::of(result) else {
            return Ok(Seen::AsItIs);
        };
        let tools = match &result.named("tools")[..] {
            [] => return Ok(Seen::AsItIs),
            [("tools", tools)] => *tools,
            _ => return Err(Unreadable),
        };
        let all: Vec<&RawValue> = serde_json::from_str(tools.get()).map_err(|_| Unreadable)?;
        let is_allowed = |tool: &&&RawValue| {
            let name = Members::of(tool.get()).and_then(|tool| tool.text("name"));
            name.is_some_and(|name| self.allows(&name))
        };
        let allowed: Vec<_> = all
            .iter()
            .filter(is_allowed)
            .map(|tool| tool.get())
            .collect();
        if allowed.len() == all.len() {
            return Ok(Seen::AsItIs);
        }
        let span = message.result_member("tools").ok_or(Unreadable)?;
        let list = format!("[{}]", allowed.join(","));
        Ok(Seen::Without(message.splice(span, &list)))
    }
}

/// Whether a message calls no tool, or one that is allowed. It can be read in one way only: otherwise it would be no
/// message.
fn may_send(tools: &ToolFilter, message: &Message) -> bool {
    message.method() != Some("tools/call")
        || message
            .called_tool()
            .is_some_and(|name| tools.allows(&name))
}

/// What the client gets in place of a list that cannot be filtered.
fn refusal(message: &Message) -> Message {
    let body = Bytes::from(Fault::ToolsNotFiltered.body(message.id()));
    // It parses, because it is one of Bowline's own.
    Message::from_server(body).unwrap_or_else(|_| message.clone())
}

#[cfg(test)]
mod tests;
