//! The lists of all servers as one: in the order of the configuration, each definition as its server wrote it but for
//! the name, and with a word on every server that is missing.

use std::sync::Arc;

use bowline_wire::message::Message;
use serde_json::{Map, Value, json};

use super::Attached;
use super::asking::Told;
use super::left_out::LeftOut;
use super::list::List;
use super::listing::{Listing, with_text};
use super::page::{Cursor, Entry, page};
use super::routing::text_param;
use crate::config::ServerName;
use crate::exchange::Reply;
use crate::exchange::own_tool::sign_in_tool;
use crate::fault::{Fault, Reason};
use crate::route::names::{NameRefusal, Names, Resolved};
use crate::route::union::UnionMembers;
use crate::upstream::Upstream;

/// Where a result says which servers are missing from it, or were not asked.
const SERVERS: &str = "bowline/servers";
/// Where it says which names were refused, and why.
const REFUSED: &str = "bowline/refused_names";

impl Attached {
    /// Answers a request for a list.
    pub(super) async fn list(&self, message: &Message, list: List) -> Result<Reply, Fault> {
        let cursor = message.param("cursor");
        let after = match cursor.map(|span| message.text(span)) {
            None | Some("null") => None,
            Some(_) => {
                let (_, cursor) = text_param(message, "cursor")?;
                let cursor = Cursor::parse(&cursor, list.items());
                Some(cursor.ok_or(Fault::BadCursor)?)
            }
        };
        let mut told = self.ask_all(list).await;
        if let Some(missing) = told.iter().find(|one| one.is_missing()) {
            return Err(missing.required());
        }
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::AbsenceIsSilent) {
            told.retain(|one| one.absence.is_none());
        }
        // A server of which nothing is known is not stale because a sign-in is offered for it.
        let missing = missing(&told);
        told.iter_mut().for_each(|one| one.offer_sign_in(list));
        let now = self.attachment().union.now();
        let shown = self.attachment().state.lock().shown.clone();
        if after.is_some() && shown.has_other_prefixes(list, &now.names) {
            // Its first page had other names.
            return Err(Fault::BadCursor);
        }
        let (entries, refused) = entries(&now, list, &told);
        self.show(list, &now.names, &entries).await?;
        let servers: Vec<&str> = now.servers.iter().map(|one| one.name.as_ref()).collect();
        let (shown, next) = page(list.items(), &entries, &servers, after.as_ref());
        let result = result(list, shown, next, meta(missing, refused));
        Ok(Reply::result(message, &result))
    }

    /// The server that a tool's or prompt's name belongs to, and the server's own name for it.
    pub(super) async fn resolve(
        &self,
        list: List,
        name: &str,
    ) -> Result<(Arc<Upstream>, String), Fault> {
        let now = self.attachment().union.now();
        let shown = self.attachment().state.lock().shown.meaning(list, name);
        let resolved = match (now.names.resolve_prefixed(name), shown) {
            (None, None) => self.resolve_by_lists(&now, list, name).await,
            (Some(resolved), None) => Ok(resolved),
            (Some(resolved), Some(shown)) if resolved == shown => Ok(resolved),
            // It was shown bare.
            (None, Some(shown)) if shown.name == name => Ok(shown),
            (resolved, Some(shown)) => Err(self.moved(shown, resolved)),
        };
        let unknown = |why: NameRefusal| Fault::UnknownName {
            name: name.into(),
            why: why.to_string().into(),
        };
        let Resolved { server, name: own } = resolved.map_err(unknown)?;
        let server = self.server(server.as_ref());
        #[cfg(feature = "planted")]
        let server = match crate::planted::has(crate::planted::Bug::FirstServerForAll) {
            true => now.servers.first().cloned(),
            false => server,
        };
        let server = server.ok_or_else(|| unknown(NameRefusal::Unknown))?;
        Ok((server, own))
    }

    /// Why a name is refused that a reload has given to another, or taken from whoever had it.
    fn moved(&self, shown: Resolved, now: Option<Resolved>) -> NameRefusal {
        let meanings = [Some(shown), now].into_iter().flatten();
        let known = meanings.filter(|one| self.server(one.server.as_ref()).is_some());
        let meanings: Vec<_> = known.map(|one| one.to_string()).collect();
        match meanings.is_empty() {
            true => NameRefusal::Unknown,
            false => NameRefusal::Moved { meanings },
        }
    }

    /// The same for a name that does not say it and that this client was not shown: it means what the lists of all
    /// servers say, those that are known or those that they answer now.
    async fn resolve_by_lists(
        &self,
        now: &UnionMembers,
        list: List,
        name: &str,
    ) -> Result<Resolved, NameRefusal> {
        let servers = self.servers();
        let known = servers
            .iter()
            .map(|one| (&one.name, self.listing(one, list)));
        match resolve_by(&now.names, name, known) {
            // What is new is in no list that is known.
            Err(NameRefusal::Unknown | NameRefusal::Doubtful { .. }) => {}
            resolved => return resolved,
        }
        let told = self.ask_all(list).await;
        let told = told.iter();
        let told = told.map(|one| (&one.server.name, one.listing.clone()));
        resolve_by(&now.names, name, told)
    }

    /// Notes what the client is about to be shown, before it is: it may use a name at another gateway at once.
    async fn show(&self, list: List, names: &Names, entries: &[Entry]) -> Result<(), Fault> {
        let attachment = self.attachment();
        let shared = &self.unions.shown;
        let shown = attachment.state.lock().shown.clone();
        if shown.after(list, names, entries, shared) == shown {
            return Ok(());
        }
        let noting = attachment
            .change(|state| state.shown = state.shown.after(list, names, entries, shared));
        let noted = noting.await.map_err(|error| Fault::store_failed(&error))?;
        noted.ok_or(Fault::UnknownSession)
    }
}

/// What a name belongs to by these lists. A server without a list may have anything.
fn resolve_by<'a>(
    names: &Names,
    name: &str,
    lists: impl Iterator<Item = (&'a ServerName, Option<Arc<Listing>>)>,
) -> Result<Resolved, NameRefusal> {
    let (mut known, mut unlisted) = (Vec::new(), Vec::new());
    for (server, listing) in lists {
        if listing.as_ref().is_none_or(|listing| listing.cut.is_some()) {
            unlisted.push(server);
        }
        known.extend(listing.map(|listing| (server, listing)));
    }
    names.resolve_without(name, &catalogue(&known), &unlisted)
}

fn catalogue<'a>(
    lists: &'a [(&'a ServerName, Arc<Listing>)],
) -> Vec<(&'a ServerName, Vec<&'a str>)> {
    let lists = lists.iter();
    lists
        .map(|(server, listing)| (*server, listing.keys()))
        .collect()
}

// === impl Told ===

impl Told {
    /// Whether the operator wants no list without this server, and there is none of it.
    fn is_missing(&self) -> bool {
        self.listing.is_none() && self.absence.is_some() && self.server.config().required
    }

    fn required(&self) -> Fault {
        let why = self.absence.as_ref().map(|absence| absence.message.clone());
        Fault::RequiredServer {
            server: self.server.name.clone(),
            why: why.unwrap_or_default(),
        }
    }

    /// Lists the tool that starts a sign-in, if that is why the server could not be asked.
    fn offer_sign_in(&mut self, list: List) {
        let wants_sign_in = self
            .absence
            .as_ref()
            .is_some_and(|absence| absence.reason == Reason::SignInNeeded.row().name);
        if !wants_sign_in || list != List::Tools {
            return;
        }
        let tool = sign_in_tool(&self.server.name).to_string();
        let known = self.listing.as_deref();
        self.listing = Some(Arc::new(Listing::with(known, tool, list)));
    }
}

/// The items of all servers as the client sees them, and the names that it cannot see.
fn entries(now: &UnionMembers, list: List, told: &[Told]) -> (Vec<Entry>, Vec<String>) {
    let lists: Vec<(&ServerName, Arc<Listing>)> = told
        .iter()
        .map(|one| (&one.server.name, one.listing.clone().unwrap_or_default()))
        .collect();
    let entry = |server: usize, item: usize, name: Option<&str>| {
        let (server, listing) = &lists[server];
        let item = listing.items.get(item)?;
        let raw = match name {
            Some(name) if *name != *item.key => with_text(&item.raw, list.key(), name)?,
            _ => item.raw.to_string(),
        };
        Some(Entry {
            server: server.as_ref().into(),
            key: item.key.clone(),
            is_bare: name == Some(&*item.key),
            raw,
        })
    };
    if !matches!(list, List::Tools | List::Prompts) {
        let all = lists.iter().enumerate();
        let all =
            all.flat_map(|(at, (_, listing))| (0..listing.items.len()).map(move |item| (at, item)));
        return (
            all.filter_map(|(at, item)| entry(at, item, None)).collect(),
            Vec::new(),
        );
    }
    let listed = now.names.exposed(&catalogue(&lists));
    let exposed = listed.exposed.iter();
    let entries = exposed.filter_map(|it| entry(it.place.server, it.place.item, Some(&it.name)));
    let refused = listed.refused.into_iter().map(|refused| refused.name);
    (entries.collect(), refused.collect())
}

/// What is said of servers that were not asked, or not to the end.
fn missing(told: &[Told]) -> Map<String, Value> {
    let mut servers = Map::new();
    for one in told {
        let listing = one.listing.as_deref();
        let left_out = listing.map(|listing| &listing.left_out);
        let left_out = left_out.filter(|left_out| left_out.count > 0);
        let cut = listing.and_then(|listing| listing.cut);
        let mut said = match (&one.absence, listing, cut) {
            (Some(absence), listing, _) => {
                let state = match listing {
                    Some(_) => "stale",
                    None => "absent",
                };
                json!({"state": state, "reason": absence.reason, "message": absence.message})
            }
            (None, _, Some(why)) => json!({"state": "incomplete", "message": why}),
            (None, _, None) if left_out.is_some() => {
                json!({"state": "incomplete", "message": "some of it is left out"})
            }
            (None, _, None) => continue,
        };
        if let Some(LeftOut { named, count }) = left_out {
            said["left_out"] = json!(named);
            said["left_out_count"] = json!(count);
        }
        servers.insert(one.server.name.to_string(), said);
    }
    servers
}

fn meta(servers: Map<String, Value>, refused: Vec<String>) -> Map<String, Value> {
    let mut meta = Map::new();
    if !servers.is_empty() {
        meta.insert(SERVERS.to_owned(), servers.into());
    }
    if !refused.is_empty() {
        meta.insert(REFUSED.to_owned(), refused.into());
    }
    meta
}

/// The result as JSON text. The definitions are put into it as they are.
fn result(list: List, shown: &[Entry], next: Option<String>, meta: Map<String, Value>) -> String {
    let items: Vec<&str> = shown.iter().map(|entry| &*entry.raw).collect();
    let mut result = format!(r#"{{"{}":[{}]"#, list.items(), items.join(","));
    if let Some(next) = next {
        result += &format!(r#","nextCursor":"{next}""#);
    }
    if !meta.is_empty() {
        result += &format!(r#","_meta":{}"#, Value::from(meta));
    }
    result.push('}');
    result
}
