//! The bare names that a client was shown. What such a name meant in the client's last list it means until the next one,
//! whatever other clients have listed since.

use std::collections::HashMap;

use super::list::List;
use super::page::Entry;
use crate::config::ServerName;

/// How many names are remembered. Others are found by the lists of the servers.
const MAX: usize = 10_000;

/// The bare names that a client was shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    tools: HashMap<Box<str>, ServerName>,
    prompts: HashMap<Box<str>, ServerName>,
}

impl Shown {
    /// The server whose tool or prompt had this name.
    pub(super) fn get(&self, list: List, name: &str) -> Option<ServerName> {
        match list {
            List::Tools => self.tools.get(name).cloned(),
            List::Prompts => self.prompts.get(name).cloned(),
            List::Resources | List::Templates => None,
        }
    }

    /// Remembers what a list shows under its own name.
    pub(super) fn remember(&mut self, list: List, entries: &[Entry]) {
        let bare = entries.iter().filter(|entry| entry.is_bare).take(MAX);
        let bare = bare.filter_map(|entry| Some((entry.key.clone(), entry.server.parse().ok()?)));
        match list {
            List::Tools => self.tools = bare.collect(),
            List::Prompts => self.prompts = bare.collect(),
            List::Resources | List::Templates => {}
        }
    }
}
