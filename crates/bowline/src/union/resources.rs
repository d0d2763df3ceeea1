//! Resources: their URIs are passed as they are, so which server has one is not in its name. A server that claims it
//! (`claims`) is asked alone; a URI that nobody claims is asked of one after the other, in the order of the configuration.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bowline_wire::codes;
use bowline_wire::message::Message;
use tokio::time::{Instant, timeout_at};

use super::Attached;
use super::claims::Claim;
use super::list::List;
use super::listing::answer_of;
use super::routing::text_param;
use crate::config::ServerName;
use crate::exchange::Reply;
use crate::exchange::answer::{Answer, LargeAnswers};
use crate::fault::Fault;
use crate::upstream::{MAX_HELD_ANSWER, Upstream};

/// Where a request about a resource goes.
#[derive(Default)]
pub(super) struct Places {
    /// Servers that have others of the same scheme and authority, best first: the others are asked only if each of
    /// these has said that it does not have this one.
    first: Vec<Arc<Upstream>>,
    /// Servers of which any may have it.
    others: Vec<Arc<Upstream>>,
}

impl Attached {
    pub(super) async fn read(&self, message: &Message) -> Result<Reply, Fault> {
        let (_, uri) = text_param(message, "uri")?;
        let places = self.with_resource(&uri).await?;
        self.first_that_answers(message, places).await
    }

    /// Subscribes where a read of the same resource succeeded, and takes it back at the same place.
    pub(super) async fn subscribe(&self, message: &Message) -> Result<Reply, Fault> {
        let (_, uri) = text_param(message, "uri")?;
        let places = self.with_resource(&uri).await?;
        self.first_that_answers(message, places).await
    }

    /// Asks for a completion where this template is listed.
    pub(super) async fn complete_uri(&self, message: &Message, uri: &str) -> Result<Reply, Fault> {
        let mut servers = self.servers();
        let has_it = |server: &Arc<Upstream>| {
            let listing = self.listing(server, List::Templates);
            listing.is_some_and(|listing| listing.has(uri))
        };
        let claiming: Vec<_> = servers.iter().filter(|one| has_it(one)).cloned().collect();
        if !claiming.is_empty() {
            servers = vec![only_one(uri, claiming)?];
        }
        self.first_that_answers(message, Places::any(servers)).await
    }

    /// The servers to ask for this resource, best first.
    async fn with_resource(&self, uri: &str) -> Result<Places, Fault> {
        self.know_resources().await;
        let mut servers = self.servers();
        let claims = servers.iter().filter_map(|server| {
            let resources = self.listing(server, List::Resources);
            let templates = self.listing(server, List::Templates);
            let claim = Claim::of(uri, resources.as_ref(), templates.as_ref())?;
            Some((claim, Arc::clone(server)))
        });
        let claims: Vec<_> = claims.collect();
        let with = |wanted: Claim| -> Vec<Arc<Upstream>> {
            let claims = claims.iter().filter(|(claim, _)| *claim == wanted);
            claims.map(|(_, server)| Arc::clone(server)).collect()
        };
        let (own, like_it, listed) = (with(Claim::Own), with(Claim::Origin), with(Claim::Listed));
        if !own.is_empty() {
            return Ok(Places::any(vec![only_one(uri, own)?]));
        }
        match listed.is_empty() {
            true => servers.retain(|server| !has(&like_it, server)),
            false => servers = vec![only_one(uri, listed)?],
        }
        let mut places = Places {
            first: like_it,
            others: servers,
        };
        if let Some(home) = self.attachment().uris.lock().get(uri) {
            places.prefer(&home);
        }
        Ok(places)
    }

    /// Asks for the lists of resources that are not known, so that no server is asked for what is another's.
    async fn know_resources(&self) {
        let asking = [List::Resources, List::Templates].map(async |list| {
            let is_unknown = |server: &Arc<Upstream>| {
                let slot = self.attachment().slot(&server.name);
                !slot.was_asked(list) && self.listing(server, list).is_none()
            };
            let mut servers = self.servers();
            servers.retain(is_unknown);
            self.ask_these(&servers, list).await;
        });
        let [resources, templates] = asking;
        tokio::join!(resources, templates);
    }

    /// Sends a request to one server after the other, until one answers without an error. One of several that does
    /// not answer soon must not keep the others from being asked; it is waited for all the same, within its budget.
    pub(super) async fn first_that_answers(
        &self,
        message: &Message,
        places: Places,
    ) -> Result<Reply, Fault> {
        let Places { mut first, others } = places;
        let mut servers = others;
        if servers.is_empty() {
            servers.extend(first.pop());
        }
        for server in first {
            let (server, answer) = self.answer_from(server, message).await;
            let answer = answer.map_err(Fault::of_member)?;
            let code = answer.error_code();
            if code.is_none_or(codes::is_about_server) {
                self.note_home(message, &server, code.is_none());
                return Ok(Reply::own(answer.raw().clone()));
            }
        }
        if let [server] = &servers[..] {
            let reply = self.send(server, message.clone()).await?;
            let has_it = is_result(message, &reply).await;
            self.note_home(message, server, has_it);
            return Ok(reply);
        }
        let budget = servers.iter().map(|server| server.budget()).max();
        let deadline = Instant::now() + budget.unwrap_or_default();
        let (mut refused, mut failed) = (None::<Message>, None);
        let mut servers = servers.into_iter();
        let (mut asked, mut silent) = (Vec::new(), Vec::new());
        loop {
            let limit = match servers.next() {
                Some(server) => {
                    let limit = Instant::now() + server.config().list_timeout;
                    silent.push(server.name.clone());
                    asked.push(Box::pin(self.answer_from(server, message)));
                    limit.min(deadline)
                }
                None if asked.is_empty() => break,
                None => deadline,
            };
            let Ok((server, answer)) = timeout_at(limit, first_of(&mut asked)).await else {
                if limit < deadline {
                    continue;
                }
                failed = failed.or_else(|| silent.pop().map(too_late));
                break;
            };
            silent.retain(|name| *name != server.name);
            match answer {
                Err(fault) => {
                    failed.get_or_insert(fault);
                }
                Ok(answer) if answer.error().is_none() => {
                    self.note_home(message, &server, true);
                    return Ok(Reply::own(answer.raw().clone()));
                }
                // Who does not have the method knows nothing of the resource: another's refusal says more.
                Ok(answer) if refused.as_ref().is_none_or(has_no_method) => {
                    refused = Some(answer);
                }
                Ok(_) => {}
            }
        }
        match (failed, refused) {
            // A server that could not be asked may have it: that nobody has it is not known.
            (Some(fault), _) => Err(fault.of_member()),
            (None, Some(answer)) => Ok(Reply::own(answer.raw().clone())),
            (None, None) => Err(Fault::NoSuchMethod),
        }
    }

    /// The answer of one of several servers.
    async fn answer_from(
        &self,
        server: Arc<Upstream>,
        message: &Message,
    ) -> (Arc<Upstream>, Result<Message, Fault>) {
        let id = message.id().unwrap_or_default();
        let answer = match self.send(&server, message.clone()).await {
            Ok(reply) => answer_of(id, reply, (&server.name, &self.attachment().listening))
                .await
                .map_err(|error| Fault::Upstream {
                    server: server.name.clone(),
                    generation: 0,
                    error,
                }),
            Err(fault) => Err(fault),
        };
        (server, answer)
    }

    /// Notes whether a server had a resource, which only a read shows: servers accept subscriptions to anything.
    fn note_home(&self, message: &Message, server: &Upstream, has_it: bool) {
        if message.method() == Some("resources/read")
            && let Ok((_, uri)) = text_param(message, "uri")
        {
            let mut uris = self.attachment().uris.lock();
            match has_it {
                true => uris.remember(uri, server.name.clone()),
                false => uris.forget(&uri),
            }
        }
    }
}

// === impl Places ===

impl Places {
    fn any(others: Vec<Arc<Upstream>>) -> Self {
        Self {
            others,
            ..Self::default()
        }
    }

    /// Only this server, if it is one of them: it had the resource before.
    fn prefer(&mut self, home: &ServerName) {
        let all = self.first.iter().chain(&self.others);
        let home = all.filter(|one| one.name == *home).cloned();
        let home: Vec<_> = home.collect();
        if !home.is_empty() {
            *self = Self::any(home);
        }
    }
}

fn has(servers: &[Arc<Upstream>], server: &Arc<Upstream>) -> bool {
    servers.iter().any(|one| one.name == server.name)
}

/// The one server that claims a resource.
fn only_one(uri: &str, claiming: Vec<Arc<Upstream>>) -> Result<Arc<Upstream>, Fault> {
    let names: Vec<String> = claiming
        .iter()
        .map(|one| format!("`{}`", one.name))
        .collect();
    match <[_; 1]>::try_from(claiming) {
        Ok([server]) => Ok(server),
        Err(_) => Err(Fault::UnknownName {
            name: uri.into(),
            why: format!(
                "several servers have this resource ({}); it can be read at the path of one of them alone",
                names.join(", ")
            )
            .into(),
        }),
    }
}

/// Whether a reply is a result that has arrived.
async fn is_result(request: &Message, reply: &Reply) -> bool {
    let arrived = match reply {
        Reply::Message { body, sent_as } => Reply::Message {
            body: body.clone(),
            sent_as: sent_as.clone(),
        },
        Reply::Events(events) => Reply::Events(events.clone()),
        Reply::Accepted | Reply::Stream(_) => return false,
    };
    let id = request.id().unwrap_or_default();
    let mut answer = Answer::of(id, arrived, &LargeAnswers::up_to(MAX_HELD_ANSWER));
    while let Ok(Some(message)) = answer.next().await {
        if message.answers(id) {
            return message.error().is_none();
        }
    }
    false
}

fn too_late(server: ServerName) -> Fault {
    let why = "it did not answer in time, and it may have what was asked for".into();
    Fault::Declining { server, why }
}

fn has_no_method(answer: &Message) -> bool {
    answer.error_code() == Some(codes::METHOD_NOT_FOUND)
}

/// The output of the first of these futures that is ready, which is taken out.
async fn first_of<F: Future>(futures: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        for at in 0..futures.len() {
            if let Poll::Ready(output) = futures[at].as_mut().poll(cx) {
                drop(futures.remove(at));
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}
