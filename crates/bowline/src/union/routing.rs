//! Which member a message is for. What the attachment answers itself, it answers here.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::compose;
use bowline_wire::id::SessionId;
use bowline_wire::message::{Kind, Message, RawId, Span};
use bowline_wire::version::Agreed;
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;

use super::Attached;
use super::list::List;
use super::listing::{own_id, with_text};
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::exchange::batch::TakesMessages;
use crate::fault::Fault;
use crate::registry::Registry;
use crate::session_store::announcement::Announcement;
use crate::upstream::{Upstream, UpstreamError};

/// How long the client waits until all members were told something.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// `logging/setLevel` with this level (JSON text), under an id of Bowline's own.
pub(super) fn set_level(level: &str) -> String {
    let params = format!(r#"{{"level":{level}}}"#);
    compose::request(own_id(0), "logging/setLevel", params)
}

impl Attached {
    /// Takes one message and returns the reply. Dropping it counts as the client's disconnect.
    pub(crate) async fn handle(self, message: Message) -> Result<Reply, Fault> {
        match message.kind() {
            Kind::Request => self.request(&message).await,
            Kind::Notification => self.notification(&message).await,
            Kind::Response => self.response(message).await,
        }
    }

    async fn request(&self, message: &Message) -> Result<Reply, Fault> {
        let method = message.method().unwrap_or_default();
        if let Some(list) = List::of(method) {
            return self.list(message, list).await;
        }
        match method {
            "ping" => Ok(Reply::result(message, "{}")),
            "tools/call" => self.named(message, List::Tools).await,
            "prompts/get" => self.named(message, List::Prompts).await,
            "resources/read" => self.read(message).await,
            "resources/subscribe" | "resources/unsubscribe" => self.subscribe(message).await,
            "completion/complete" => self.complete(message).await,
            "logging/setLevel" => self.set_level(message).await,
            _ => Err(Fault::NoSuchMethod),
        }
    }

    /// Sends a request to the server that its name says, under the server's own name.
    async fn named(&self, message: &Message, list: List) -> Result<Reply, Fault> {
        let (span, name) = text_param(message, "name")?;
        let (server, own) = self.resolve(list, &name).await?;
        let message = match own == name {
            true => message.clone(),
            false => message.replaced(span, &serde_json::Value::from(own).to_string()),
        };
        self.send(&server, message).await
    }

    async fn complete(&self, message: &Message) -> Result<Reply, Fault> {
        #[derive(Deserialize)]
        struct Reference {
            name: Option<String>,
            uri: Option<String>,
        }
        let span = message.param("ref").ok_or(Fault::MissingParam("ref"))?;
        let reference = message.text(span);
        match serde_json::from_str(reference) {
            Ok(Reference {
                name: Some(name), ..
            }) => {
                let (server, own) = self.resolve(List::Prompts, &name).await?;
                let own = with_text(reference, "name", &own);
                let own = own.ok_or(Fault::MissingParam("ref"))?;
                let message = Message::parse(message.splice(span, &own))?;
                self.send(&server, message).await
            }
            Ok(Reference { uri: Some(uri), .. }) => self.complete_uri(message, &uri).await,
            _ => Err(Fault::MissingParam("ref")),
        }
    }

    /// Sets the log level of every member, and of those that are opened later.
    async fn set_level(&self, message: &Message) -> Result<Reply, Fault> {
        let (span, _) = text_param(message, "level")?;
        let level = message.text(span).to_owned();
        let setting = self
            .attachment()
            .change(|state| state.level = Some(level.clone()));
        let set = setting.await.map_err(|error| Fault::store_failed(&error))?;
        set.ok_or(Fault::UnknownSession)?;
        let mut telling = Vec::new();
        for exchange in self.members().await {
            let capabilities = exchange.in_use.session().client_state.capabilities;
            if let Ok(request) = Message::parse(set_level(&level).into())
                && capabilities.may_log()
            {
                telling.push(exchange.handle_unasked(request));
            }
        }
        self.tell_all(telling).await;
        Ok(Reply::result(message, "{}"))
    }

    /// Tells all members something. One that does not take it holds nobody up.
    async fn tell_all<F>(&self, telling: impl IntoIterator<Item = F>)
    where
        F: Future<Output = Result<Reply, Fault>> + Send + 'static,
    {
        let tracker = &self.unions.registry.tracker;
        let telling = telling.into_iter().map(|one| tracker.spawn(one));
        let telling: Vec<_> = telling.collect();
        let all = async {
            for told in telling {
                if let Ok(Err(fault)) = told.await {
                    tracing::debug!(%fault, "a member did not take what was said to all");
                }
            }
        };
        drop(tokio::time::timeout(TOLD_WITHIN, all).await);
    }

    /// Sends a request to one member, and passes its reply on.
    pub(super) async fn send(
        &self,
        server: &Arc<Upstream>,
        message: Message,
    ) -> Result<Reply, Fault> {
        let sent = self.send_to_member(server, message).await;
        sent.map_err(Fault::of_member)
    }

    async fn send_to_member(
        &self,
        server: &Arc<Upstream>,
        message: Message,
    ) -> Result<Reply, Fault> {
        let exchange = match self.member_for(server, &message).await {
            Err(fault @ Fault::MemberLost { .. }) => {
                self.take_loss(&server.name).await?;
                return Err(fault);
            }
            _ if self.take_loss(&server.name).await? => {
                let server = server.name.clone();
                return Err(Fault::MemberLost { server });
            }
            member => member?,
        };
        let session = exchange.id;
        let turn = self.turn_to_prompt(&exchange, &message).await?;
        if turn.is_some() {
            self.ask_after_turn(server);
        }
        let replied = exchange.handle(message).await;
        let replied = replied.map(|reply| {
            reply.map_stream(|outlet| match turn {
                Some(turn) => outlet.holding(turn),
                None => outlet,
            })
        });
        match replied {
            Err(fault) if fault.is_session_lost() => {
                self.lost(&session, true).await;
                let server = server.name.clone();
                Err(Fault::MemberLost { server })
            }
            reply => reply,
        }
    }

    /// Waits until no other request may prompt this client, if this one may: one at a time, because a person reads
    /// one.
    async fn turn_to_prompt(
        &self,
        exchange: &Exchange,
        message: &Message,
    ) -> Result<Option<OwnedMutexGuard<()>>, Fault> {
        let leg = exchange.in_use.session().leg();
        if leg.account.is_none() || !leg.generation.is_unopened() {
            return Ok(None);
        }
        let attachment = self.attachment();
        let waiting = attachment.waiting(message.id().unwrap_or_default());
        tokio::select! {
            biased;
            () = waiting.cancelled() => Err(Fault::on(&leg, UpstreamError::Cancelled)),
            turn = Arc::clone(&attachment.prompting).lock_owned() => Ok(Some(turn)),
        }
    }

    /// The member for a request, which the client may cancel while it is opened.
    async fn member_for(
        &self,
        server: &Arc<Upstream>,
        message: &Message,
    ) -> Result<Exchange, Fault> {
        if self.attachment().member_of(&server.name).is_some() {
            return self.member(server).await;
        }
        let waiting = self.attachment().waiting(message.id().unwrap_or_default());
        tokio::select! {
            biased;
            () = waiting.cancelled() => Err(Fault::Upstream {
                server: server.name.clone(),
                generation: 0,
                error: UpstreamError::Cancelled,
            }),
            member = self.member(server) => member,
        }
    }

    /// Forgets a member whose session was lost for good. The next call tells the client, unless this one does.
    pub(super) async fn lost(&self, session: &SessionId, is_told: bool) {
        let members = self.attachment().members();
        let lost = members.iter().find(|member| member.session == *session);
        if let Some(member) = lost {
            self.give_up(member.number, is_told).await;
        }
    }

    // === notifications ===

    async fn notification(&self, message: &Message) -> Result<Reply, Fault> {
        match message.method() {
            Some("notifications/cancelled") => self.cancel(message).await,
            Some("notifications/progress") => self.progress(message).await,
            Some("notifications/roots/list_changed") => {
                let members = self.members().await.into_iter();
                let telling = members.map(|exchange| exchange.handle(message.clone()));
                self.tell_all(telling).await;
                Ok(Reply::Accepted)
            }
            // Members got one of Bowline's own when they were opened.
            Some("notifications/initialized") => Ok(Reply::Accepted),
            other => {
                tracing::debug!(
                    method = other,
                    "a notification that no member is known to expect"
                );
                Ok(Reply::Accepted)
            }
        }
    }

    /// Cancels a request at the member that has it, here or at another gateway.
    async fn cancel(&self, message: &Message) -> Result<Reply, Fault> {
        let Some(span) = message.cancelled_request() else {
            return Ok(Reply::Accepted);
        };
        let id = RawId::new(message.text(span));
        if self.attachment().cancel_waiting(id) {
            return Ok(Reply::Accepted);
        }
        match self.with_call(id).await {
            Some(exchange) => exchange.handle(message.clone()).await,
            None => {
                if let Some(stored) = &self.attachment().stored {
                    let news = Announcement::Cancelled(self.attachment().id, id.to_buf());
                    stored.session_store.announce(news);
                }
                Ok(Reply::Accepted)
            }
        }
    }

    /// The member that has this request, if it came to this gateway.
    async fn with_call(&self, id: RawId<'_>) -> Option<Exchange> {
        let members = self.members().await;
        let mut members = members.into_iter();
        members.find(|exchange| exchange.in_use.session().calls.has(id))
    }

    /// The client cancelled a request at another gateway, which does not have it.
    pub(super) async fn cancelled_elsewhere(&self, id: RawId<'_>) {
        if self.attachment().cancel_waiting(id) {
            return;
        }
        let message = compose::cancelled(id, "cancelled by the client");
        if let Some(exchange) = self.with_call(id).await
            && let Ok(message) = Message::parse(message.into())
            && let Err(fault) = exchange.handle(message).await
        {
            tracing::debug!(%fault, "a cancel was not delivered");
        }
    }

    /// Passes on the progress of a member's request. Its token says whose it is.
    async fn progress(&self, message: &Message) -> Result<Reply, Fault> {
        let Some(span) = message.param("progressToken") else {
            return Ok(Reply::Accepted);
        };
        let token = RawId::new(message.text(span));
        let Some((at, own)) = self.attachment().seal.open_request(token) else {
            return Ok(Reply::Accepted);
        };
        match self.numbered(at.leg).await {
            Some(exchange) if exchange.in_use.session().leg().generation == at => {
                let message = Message::parse(message.splice(span, own.as_str()))?;
                exchange.handle(message).await
            }
            // Whoever asked is gone.
            _ => Ok(Reply::Accepted),
        }
    }

    /// Hands a client's answer to the member that asked.
    async fn response(&self, message: Message) -> Result<Reply, Fault> {
        let mark = message.id().ok_or(Fault::StrayAnswer)?;
        let opened = self.attachment().seal.open_request(mark);
        let (at, _) = opened.ok_or(Fault::StrayAnswer)?;
        match self.numbered(at.leg).await {
            Some(exchange) => exchange.handle(message).await,
            // Whoever asked is gone.
            None => Ok(Reply::Accepted),
        }
    }
}

/// A text among the params.
pub(super) fn text_param(message: &Message, name: &'static str) -> Result<(Span, String), Fault> {
    let span = message.param(name).ok_or(Fault::MissingParam(name))?;
    let text = serde_json::from_str(message.text(span));
    Ok((span, text.map_err(|_| Fault::MissingParam(name))?))
}

impl TakesMessages for Attached {
    fn take(self, message: Message) -> impl Future<Output = Result<Reply, Fault>> + Send {
        self.handle(message)
    }

    fn version(&self) -> Agreed {
        self.attachment().version.clone()
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.unions.registry
    }

    fn failed(&self, error: UpstreamError) -> Fault {
        Fault::Upstream {
            server: self.attachment().union.name.clone(),
            generation: 0,
            error,
        }
    }
}
