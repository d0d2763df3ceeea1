//! The members of an attachment: found, opened on first use, and given up when they are lost.

use std::sync::Arc;

use bowline_wire::compose;
use bowline_wire::message::Message;

use super::Attached;
use super::known::Audience;
use super::listing::answer_of;
use super::record::Member;
use super::routing::set_level;
use crate::config::ServerName;
use crate::exchange::Exchange;
use crate::exchange::open::{Membership, Opening};
use crate::fault::Fault;
use crate::session::InUse;
use crate::upstream::{Carried, Upstream};

/// What became of a session that was opened to be a member.
enum Joined {
    Yes,
    /// Another gateway opened a member with the same server first.
    Other(Member),
}

impl Attached {
    /// The member with this server. It is opened if there is none.
    pub(super) async fn member(&self, server: &Arc<Upstream>) -> Result<Exchange, Fault> {
        let attachment = self.attachment();
        if let Some(member) = attachment.member_of(&server.name) {
            return self.found(&member, server).await;
        }
        let slot = attachment.slot(&server.name);
        let _opening = slot.opening.lock().await;
        match attachment.member_of(&server.name) {
            Some(member) => self.found(&member, server).await,
            None => Box::pin(self.open(server)).await,
        }
    }

    /// The member with this number, if it is there.
    pub(super) async fn numbered(&self, number: u16) -> Option<Exchange> {
        let member = self.attachment().member(number)?;
        let server = self.server(member.server.as_ref())?;
        self.found(&member, &server).await.ok()
    }

    /// The members that are there.
    pub(super) async fn members(&self) -> Vec<Exchange> {
        let mut members = Vec::new();
        for member in self.attachment().members() {
            if let Some(server) = self.server(member.server.as_ref())
                && let Ok(exchange) = self.found(&member, &server).await
            {
                members.push(exchange);
            }
        }
        members
    }

    async fn found(&self, member: &Member, server: &Arc<Upstream>) -> Result<Exchange, Fault> {
        let table = &self.unions.registry.table;
        let found = table.find(&member.session, server).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        match found {
            Some(in_use) => self.exchange(in_use),
            None => {
                self.give_up(member.number, false).await;
                let server = server.name.clone();
                Err(Fault::MemberLost { server })
            }
        }
    }

    /// A request of a member.
    fn exchange(&self, in_use: InUse) -> Result<Exchange, Fault> {
        let carried = self.carried_to(&in_use.session().upstream);
        let (registry, caller) = (&self.unions.registry, &self.attachment().caller);
        Exchange::new(registry, in_use, caller, carried, self.leaving)
    }

    /// Forgets a member whose session is gone. The next use opens another one; before that the client is told, unless
    /// it is told by whoever calls this.
    pub(super) async fn give_up(&self, number: u16, is_told: bool) {
        let attachment = self.attachment();
        let forgetting = attachment.change(|state| {
            let Some(member) = state.member(number).cloned() else {
                return;
            };
            state.members.retain(|member| member.number != number);
            if !is_told && !state.lost.contains(&member.server) {
                state.lost.push(member.server);
            }
        });
        let forgotten = forgetting.await;
        if let Err(error) = forgotten {
            tracing::debug!(%error, "could not forget a member");
        }
        attachment.listening.all_changed();
    }

    /// Whether the client has to be told that its session with this server was lost. It is told once.
    pub(super) async fn take_loss(&self, server: &ServerName) -> Result<bool, Fault> {
        let attachment = self.attachment();
        if attachment.state.lock().lost.is_empty() {
            return Ok(false);
        }
        let telling = attachment.change(|state| {
            let lost = state.lost.iter().position(|lost| lost == server);
            lost.map(|at| state.lost.swap_remove(at)).is_some()
        });
        let told = telling.await.map_err(|error| Fault::store_failed(&error))?;
        told.ok_or(Fault::UnknownSession)
    }

    async fn open(&self, server: &Arc<Upstream>) -> Result<Exchange, Fault> {
        let attachment = self.attachment();
        let number = self.next_number().await?;
        // Taking a number shows what other gateways did meanwhile.
        if let Some(member) = attachment.member_of(&server.name) {
            return self.found(&member, server).await;
        }
        let opening = Opening {
            registry: Arc::clone(&self.unions.registry),
            upstream: Arc::clone(server),
            caller: attachment.caller.clone(),
            carried: self.opening_carried(server),
            message: attachment.initialize.clone(),
            leaving: self.leaving,
            member: Some(Membership {
                seal: attachment.seal.clone(),
                number,
            }),
        };
        let (reply, newborn) = opening.open().await?;
        let failed = |error| Fault::Upstream {
            server: server.name.clone(),
            generation: 0,
            error,
        };
        let id = attachment.initialize.id().unwrap_or_default();
        let answer = answer_of(id, reply, (&server.name, &attachment.listening))
            .await
            .map_err(failed)?;
        let Some(newborn) = newborn else {
            let why = answer.error().unwrap_or_default();
            return Err(Fault::Declining {
                server: server.name.clone(),
                why: format!("it declined `initialize`: {why}").into(),
            });
        };
        if let Some(audience) = Audience::on(&newborn.session.leg(), self) {
            self.unions.known.note_instructions(audience, &answer);
        }
        let exchange = self.exchange(newborn.session.begin_use())?;
        let level = self.set_up(&exchange).await;
        let member = Member {
            number,
            server: server.name.clone(),
            session: exchange.id,
        };
        match self.join(&member).await? {
            Joined::Yes => {
                newborn.announce();
                attachment.listening.members_changed();
                // From now on it is told with the others.
                if attachment.level() != level {
                    self.tell_level(&exchange).await;
                }
                Ok(exchange)
            }
            // The newborn session ends as it is dropped.
            Joined::Other(member) => self.found(&member, server).await,
        }
    }

    /// A number that no member has had, at any gateway.
    async fn next_number(&self) -> Result<u16, Fault> {
        let numbering = self.attachment().change(|state| {
            state.numbered = state.numbered.checked_add(1)?;
            Some(state.numbered)
        });
        let number = numbering
            .await
            .map_err(|error| Fault::store_failed(&error))?;
        let number = number.ok_or(Fault::UnknownSession)?;
        number.ok_or(Fault::TooManyMembers)
    }

    /// Makes a session a member.
    async fn join(&self, member: &Member) -> Result<Joined, Fault> {
        let joining = self.attachment().change(|state| {
            if let Some(other) = state.member_of(&member.server) {
                return Joined::Other(other.clone());
            }
            state.members.push(member.clone());
            Joined::Yes
        });
        let joined = joining.await.map_err(|error| Fault::store_failed(&error))?;
        joined.ok_or(Fault::UnknownSession)
    }

    /// What goes along with the `initialize` of a member: what came with the client's own, unless this request says
    /// otherwise, and what tells loops.
    fn opening_carried(&self, server: &Upstream) -> Carried {
        let (config, own) = (server.config(), self.carried_to(server));
        let mut carried = match &self.attachment().carried {
            Some(opening) => own.or(&opening.for_server(&config), &config),
            None => own,
        };
        carried.via.clone_from(&self.carried.via);
        carried
    }

    /// Tells a new member what the client has said to all; the log level that this was. A server that refuses it can
    /// still be used.
    async fn set_up(&self, exchange: &Exchange) -> Option<String> {
        let initialized = compose::bare_notification("notifications/initialized");
        if let Ok(initialized) = Message::parse(initialized.into())
            && let Err(fault) = exchange.clone().handle(initialized).await
        {
            tracing::debug!(%fault, "a new member did not take `notifications/initialized`");
        }
        self.tell_level(exchange).await
    }

    /// Sets the log level of a new member, if the client has set one.
    async fn tell_level(&self, exchange: &Exchange) -> Option<String> {
        let capabilities = exchange.in_use.session().client_state.capabilities;
        let level = self.attachment().level();
        if let Some(level) = level.as_deref().filter(|_| capabilities.may_log())
            && let Ok(request) = Message::parse(set_level(level).into())
            && let Err(fault) = exchange.clone().handle_unasked(request).await
        {
            tracing::debug!(%fault, "a new member did not take the log level");
        }
        level
    }
}
