//! Resources: their URIs are passed as they are, so which server has one is not in its name. Servers that list it
//! come first; any other URI is asked of one after the other, in the order of the configuration.

use std::sync::Arc;

use bowline_wire::codes;
use bowline_wire::message::Message;

use super::Attached;
use super::list::List;
use super::listing::answer_of;
use super::routing::text_param;
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
            let listing = attachment.slot(&server.name).listing(List::Resources);
            is_home || (home.is_none() && listing.is_some_and(|listing| listing.has(uri)))
        })
    }

    pub(super) fn with_template(&self, uri: &str) -> Vec<Arc<Upstream>> {
        let attachment = self.attachment();
        self.preferring(|server| {
            let listing = attachment.slot(&server.name).listing(List::Templates);
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

    /// Sends a request to one server after the other, until one answers without an error.
    pub(super) async fn first_that_answers(
        &self,
        message: &Message,
        servers: Vec<Arc<Upstream>>,
    ) -> Result<Reply, Fault> {
        let id = message.id().unwrap_or_default();
        let (mut refused, mut failed) = (None::<Message>, None);
        let is_only = servers.len() == 1;
        let mut servers = servers.into_iter().peekable();
        while let Some(server) = servers.next() {
            let sending = self.send(&server, message.clone());
            // One of several that does not answer must not keep the others from being asked.
            let limit = server.config().list_timeout;
            let sent = match is_only {
                true => sending.await,
                false => match tokio::time::timeout(limit, sending).await {
                    Ok(sent) => sent,
                    Err(_) => Err(Fault::Declining {
                        server: server.name.clone(),
                        why: "it did not answer in time, and it may have what was asked for".into(),
                    }),
                },
            };
            let reply = match sent {
                Ok(reply) => reply,
                Err(fault) => {
                    failed.get_or_insert(fault);
                    continue;
                }
            };
            let is_last = servers.peek().is_none() && refused.is_none() && failed.is_none();
            if is_last {
                self.remember_home(message, &server);
                return Ok(reply);
            }
            let answer = match answer_of(id, reply, &self.attachment().listening).await {
                Ok(answer) => answer,
                Err(error) => {
                    let name = server.name.clone();
                    let fault = Fault::Upstream {
                        server: name,
                        generation: 0,
                        error,
                    };
                    failed.get_or_insert(fault);
                    continue;
                }
            };
            if answer.error().is_none() {
                self.remember_home(message, &server);
                return Ok(Reply::own(answer.raw().clone()));
            }
            // Who does not have the method knows nothing of the resource: another's refusal says more.
            let has_no_method =
                |known: &Message| known.error_code() == Some(codes::METHOD_NOT_FOUND);
            if refused.as_ref().is_none_or(has_no_method) {
                refused = Some(answer);
            }
        }
        match (failed, refused) {
            // A server that could not be asked may have it: that nobody has it is not known.
            (Some(fault), _) => Err(fault),
            (None, Some(answer)) => Ok(Reply::own(answer.raw().clone())),
            (None, None) => Err(Fault::NoSuchMethod),
        }
    }

    fn remember_home(&self, message: &Message, server: &Upstream) {
        if let Ok((_, uri)) = text_param(message, "uri") {
            let mut uris = self.attachment().uris.lock();
            uris.remember(uri, server.name.clone());
        }
    }
}
