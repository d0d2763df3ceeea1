//! Resources: their URIs are passed as they are, so which server has one is not in its name. Servers that list it
//! come first; any other URI is asked of one after the other, in the order of the configuration.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bowline_wire::codes;
use bowline_wire::message::Message;
use tokio::time::{Instant, timeout_at};

use super::Attached;
use super::list::List;
use super::listing::answer_of;
use super::routing::text_param;
use crate::config::ServerName;
use crate::exchange::reply::Reply;
use crate::fault::Fault;
use crate::upstream::Upstream;

impl Attached {
    pub(super) async fn read(&self, message: &Message) -> Result<Reply, Fault> {
        let (_, uri) = text_param(message, "uri")?;
        let servers = self.with_resource(&uri);
        self.first_that_answers(message, servers).await
    }

    /// Subscribes where a read of the same resource succeeded, and takes it back at the same place.
    pub(super) async fn subscribe(&self, message: &Message) -> Result<Reply, Fault> {
        let (_, uri) = text_param(message, "uri")?;
        let servers = self.with_resource(&uri);
        self.first_that_answers(message, servers).await
    }

    /// The servers to ask for this resource, best first.
    fn with_resource(&self, uri: &str) -> Vec<Arc<Upstream>> {
        let attachment = self.attachment();
        let home = attachment.uris.lock().get(uri);
        self.preferring(|server| {
            let is_home = home.as_ref() == Some(&server.name);
            let listing = self.listing(server, List::Resources);
            is_home || (home.is_none() && listing.is_some_and(|listing| listing.has(uri)))
        })
    }

    pub(super) fn with_template(&self, uri: &str) -> Vec<Arc<Upstream>> {
        self.preferring(|server| {
            let listing = self.listing(server, List::Templates);
            listing.is_some_and(|listing| listing.has(uri))
        })
    }

    /// The first server that is preferred alone, or else all of them in order.
    fn preferring(&self, is_preferred: impl Fn(&Upstream) -> bool) -> Vec<Arc<Upstream>> {
        let mut servers = self.servers();
        if let Some(at) = servers.iter().position(|server| is_preferred(server)) {
            let preferred = servers.swap_remove(at);
            return vec![preferred];
        }
        servers
    }

    /// Sends a request to one server after the other, until one answers without an error. One of several that does
    /// not answer soon must not keep the others from being asked; it is waited for all the same, within its budget.
    pub(super) async fn first_that_answers(
        &self,
        message: &Message,
        servers: Vec<Arc<Upstream>>,
    ) -> Result<Reply, Fault> {
        if let [server] = &servers[..] {
            let reply = self.send(server, message.clone()).await?;
            self.remember_home(message, server);
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
                    self.remember_home(message, &server);
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
            Ok(reply) => answer_of(id, reply, &self.attachment().listening)
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

    fn remember_home(&self, message: &Message, server: &Upstream) {
        if let Ok((_, uri)) = text_param(message, "uri") {
            let mut uris = self.attachment().uris.lock();
            uris.remember(uri, server.name.clone());
        }
    }
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
