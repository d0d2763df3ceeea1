//! One list of one server, all pages of it, in the words of the server where clients can read them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use bowline_wire::members::Members;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bowline_wire::{codes, compose};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use super::definition::{self, Readable};
use super::left_out::LeftOut;
use super::list::List;
use super::listening::Listening;
use crate::config::ServerName;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::exchange::answer::{Answer, LargeAnswers};
use crate::fault::{Blame, Fault, Reason};
use crate::upstream::{MAX_HELD_ANSWER, StreamError, UpstreamError};

/// What is read of one list.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The longest name, URI or URI template.
const MAX_KEY: usize = 2048;

/// The largest page that is read where all else is done, too.
const MAX_INLINE: usize = 64 * 1024;

/// A list of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(super) items: Vec<Item>,
    /// Why it was not read to its end, if it was not.
    pub(super) cut: Option<&'static str>,
    /// What clients could not read.
    pub(super) left_out: LeftOut,
}

/// One definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// The definition as clients can read it; nearly always as the server wrote it.
    pub(super) raw: Box<str>,
    /// Its name, URI or URI template.
    pub(super) key: Box<str>,
}

/// Why a server's list could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absence {
    /// The reason's name, as in refusals.
    pub(crate) reason: &'static str,
    pub(crate) message: Box<str>,
    /// Whether it is so for everybody, and not for this caller alone.
    pub(super) is_servers: bool,
}

// === impl Listing ===

impl Listing {
    /// Asks a server for a list, page after page.
    pub(super) async fn fetch(
        exchange: &Exchange,
        list: List,
        beside: &Listening,
    ) -> Result<Self, Fault> {
        let session = exchange.in_use.session();
        if !session
            .client_state
            .capabilities
            .may_have(list.capability())
        {
            return Ok(Self::default());
        }
        let (mut listing, mut cursors, mut bytes) = (Self::default(), HashSet::new(), 0);
        let mut keys = HashSet::new();
        let mut cursor: Option<Box<str>> = None;
        for page in 0.. {
            let Some(answer) = ask(exchange, list, page, cursor.as_deref(), beside).await? else {
                if page > 0 {
                    let why = "it refused the next page: it does not know the method any more";
                    listing.cut = Some(why);
                }
                break;
            };
            let length = answer.raw().len();
            bytes += length;
            let next = answer.result_member("nextCursor");
            let next = next.map(|span| Box::<str>::from(answer.text(span)));
            let adding = move || {
                let is_list = listing.add(&answer, list, &mut keys);
                (listing, keys, is_list)
            };
            let is_list;
            // Others would wait for a large page.
            (listing, keys, is_list) = match length > MAX_INLINE {
                true => spawn_blocking(adding).await.map_err(|_| {
                    declining(
                        exchange,
                        format!("its answer to {} cannot be read", list.method()),
                    )
                })?,
                false => adding(),
            };
            if !is_list {
                return Err(declining(
                    exchange,
                    format!("its answer to {} has no list", list.method()),
                ));
            }
            // No cursor, as clients read it.
            let Some(next) = next.filter(|next| !matches!(&**next, "null" | r#""""#)) else {
                break;
            };
            let cut = match () {
                () if !cursors.insert(next.clone()) => Some("its cursors repeat"),
                () if page + 1 >= MAX_PAGES => Some("it has more than 100 pages"),
                () if listing.items.len() > MAX_ITEMS => Some("it has more than 10000 items"),
                () if bytes > MAX_BYTES => Some("it is larger than 16 MiB"),
                () => None,
            };
            if let Some(cut) = cut {
                listing.cut = Some(cut);
                break;
            }
            cursor = Some(next);
        }
        Ok(listing)
    }

    /// Adds the items of one page, whose keys are none of `known`. What clients cannot read, or ask for, is left out and
    /// named. `false`: there is no list.
    fn add(&mut self, page: &Message, list: List, known: &mut HashSet<Box<str>>) -> bool {
        let items = page.result_member(list.items());
        let items = items.and_then(|span| serde_json::from_str(page.text(span)).ok());
        let Some(items): Option<Vec<&RawValue>> = items else {
            return false;
        };
        for item in items {
            let Some(key) = text_member(item.get(), list.key()) else {
                let why = format!("it does not have one `{}`", list.key());
                self.left_out.add("", None, why);
                continue;
            };
            if key.len() > MAX_KEY {
                let why = format!("its `{}` has more than {MAX_KEY} bytes", list.key());
                self.left_out.add(&key, None, why);
                continue;
            }
            if known.contains(&*key) {
                let why = format!("another before it has the same `{}`", list.key());
                self.left_out.add(&key, None, why);
                continue;
            }
            match definition::readable(item.get(), list) {
                Ok(Readable { text, without }) => {
                    known.insert(key.as_str().into());
                    for (field, why) in without {
                        self.left_out.add(&key, Some(field), why);
                    }
                    self.items.push(Item {
                        raw: text.into(),
                        key: key.into(),
                    });
                }
                Err(why) => self.left_out.add(&key, None, why),
            }
        }
        true
    }

    /// A list with one more item.
    pub(super) fn with(known: Option<&Self>, item: String, list: List) -> Self {
        let known = known.map(|known| known.items.clone());
        let mut items = known.unwrap_or_default();
        if let Some(key) = text_member(&item, list.key()) {
            items.push(Item {
                raw: item.into(),
                key: key.into(),
            });
        }
        Self {
            items,
            ..Self::default()
        }
    }

    /// A list with those items that are kept; the same one if that is all of them.
    pub(super) fn keeping(self: Arc<Self>, is_kept: impl Fn(&Item) -> bool) -> Arc<Self> {
        if self.items.iter().all(&is_kept) {
            return self;
        }
        let items = self.items.iter().filter(|item| is_kept(item));
        Arc::new(Self {
            items: items.cloned().collect(),
            cut: self.cut,
            left_out: self.left_out.clone(),
        })
    }

    /// The names of all items.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.items.iter().map(|item| &*item.key).collect()
    }

    pub(super) fn len(&self) -> usize {
        let items = self.items.iter();
        let items = items.map(|item| item.raw.len() + item.key.len());
        items.sum::<usize>() + self.left_out.len()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| &*item.key == key)
    }
}

/// Asks for one page. `None`: the server does not have this list.
async fn ask(
    exchange: &Exchange,
    list: List,
    page: usize,
    cursor: Option<&str>,
    beside: &Listening,
) -> Result<Option<Message>, Fault> {
    let id = own_id(page);
    let request = match cursor {
        Some(cursor) => {
            let params = format!(r#"{{"cursor":{cursor}}}"#);
            compose::request(&id, list.method(), params)
        }
        None => compose::bare_request(&id, list.method()),
    };
    let request = Message::parse(request.into()).map_err(Fault::from)?;
    let reply = exchange.clone().handle_unasked(request).await?;
    let failed = |error| Fault::on(&exchange.in_use.session().leg(), error);
    let server = &exchange.in_use.session().upstream.name;
    let answer = answer_of(id.as_id(), reply, (server, beside));
    let answer = answer.await.map_err(failed)?;
    match answer.error_code() {
        None => Ok(Some(answer)),
        Some(codes::METHOD_NOT_FOUND) => Ok(None),
        Some(_) => {
            let error = answer
                .error()
                .and_then(|error| text_member(error, "message"));
            let error = error.unwrap_or_default();
            let why = format!("it answered {} with an error: {error}", list.method());
            Err(declining(exchange, why))
        }
    }
}

fn declining(exchange: &Exchange, why: String) -> Fault {
    Fault::Declining {
        server: exchange.in_use.session().upstream.name.clone(),
        why: why.into(),
    }
}

/// An id of a request of Bowline's own. No client's request of this session has it: those of members have the
/// client's ids, and this one is random.
pub(super) fn own_id(page: usize) -> RawIdBuf {
    let mut random = [0; 8];
    // Without chance the number of the page is left, which no other request of this list has.
    _ = rand::fill(&mut random);
    RawIdBuf::new(format!(
        "\"bowline-{:016x}-{page}\"",
        u64::from_be_bytes(random)
    ))
}

/// Reads a reply up to the answer to this request. What its server says beside it is for the client's own stream.
pub(super) async fn answer_of(
    id: RawId<'_>,
    reply: Reply,
    (server, beside): (&ServerName, &Listening),
) -> Result<Message, UpstreamError> {
    let mut answer = Answer::of(id, reply, &LargeAnswers::up_to(MAX_HELD_ANSWER));
    loop {
        match answer.next().await? {
            Some(message) if message.answers(id) => return Ok(message),
            Some(said) => beside.say(server, &said),
            None => return Err(StreamError::NoAnswer.into()),
        }
    }
}

/// A text in an object, if it is there once.
pub(super) fn text_member(object: &str, name: &str) -> Option<String> {
    let members = Members::of(object)?;
    let value = members.only(name)?;
    serde_json::from_str(value.get()).ok()
}

/// The same object with another text under this name; `None` if the name is not there once.
pub(super) fn with_text(object: &str, name: &str, text: &str) -> Option<String> {
    let members = Members::of(object)?;
    let value = members.only(name)?.get();
    // A part of the object's own text.
    let start = value.as_ptr() as usize - object.as_ptr() as usize;
    let (before, after) = (object.get(..start)?, object.get(start + value.len()..)?);
    Some(format!("{before}{}{after}", serde_json::Value::from(text)))
}

// === impl Absence ===

impl Absence {
    /// A server did not answer within this time.
    pub(super) fn late(list: List, limit: Duration) -> Self {
        let limit = humantime::format_duration(limit);
        Self {
            reason: Reason::Deadline.row().name,
            message: format!("it did not answer {} within {limit}", list.method()).into(),
            is_servers: true,
        }
    }

    pub(super) fn of(fault: &Fault) -> Self {
        Self {
            reason: fault.row().name,
            message: fault.to_string().into(),
            is_servers: fault.row().blame != Blame::Client
                && fault.row().reason != Reason::SignInNeeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_replaced_and_all_else_stays() {
        let object = "{ \"title\":\"T\", \"na\\u006de\" : \"a\\\"b\" ,\"x\":{\"name\":1}}";
        assert_eq!(text_member(object, "name").unwrap(), "a\"b");
        let replaced = with_text(object, "name", "s__\"").unwrap();
        assert_eq!(
            replaced,
            "{ \"title\":\"T\", \"na\\u006de\" : \"s__\\\"\" ,\"x\":{\"name\":1}}"
        );
    }

    #[test]
    fn what_has_two_names_has_none() {
        for object in [r#"{"name":"a","name":"b"}"#, r#"{}"#, r#"{"name":1}"#, "[]"] {
            assert_eq!(text_member(object, "name"), None, "{object}");
        }
        assert_eq!(with_text(r#"{"name":"a","name":"b"}"#, "name", "c"), None);
    }
}
