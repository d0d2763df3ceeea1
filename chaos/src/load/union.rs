//! Clients that use all servers as one, at `/mcp`. Each is a member of every server's sessions: what it calls at one of
//! them is a call of that session.

use std::time::Duration;

use bowline_testbed::client::VERSION;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::judge::TOOLS;
use super::{LANES, Load, Rover, WITH_BATCHES, listen};
use crate::history::{Kind, Outcome};
use crate::server::{Server, Target, union_clients};

/// How long a server's tools may be missing from a list when all is well, and how often a client looks.
const PATIENCE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(200);
/// What separates a server's name from a tool's.
const SEPARATOR: &str = "__";

impl Load<'_> {
    /// Opens sessions with all servers as one, by their clients' numbers, and has each see every server's tools.
    pub(crate) async fn open_unions(&self) -> anyhow::Result<Vec<(usize, Rover)>> {
        let mut clients = Vec::new();
        for number in union_clients().take(self.arguments.union_clients()) {
            let version = match self.has_batches(number) {
                true => WITH_BATCHES,
                false => VERSION,
            };
            let name = listen::name(number);
            let client = Rover::new(self.gateways, Target::Union, number, &name, version)?;
            clients.push((number, self.open_one(number, client).await?));
        }
        Ok(clients)
    }

    /// Members whose servers' tools do not come back although all is well.
    pub(crate) async fn partial(&self, clients: &[(usize, Rover)]) -> Vec<usize> {
        let until = Instant::now() + PATIENCE;
        let mut looking = JoinSet::new();
        for (number, client) in clients {
            for server in Server::ALL {
                let mut lane = self.lane(*number, LANES, client.twin());
                lane.calls.only(server);
                looking.spawn(async move {
                    while Instant::now() < until {
                        let listed = timeout(PATIENCE, lane.record(Kind::List)).await;
                        if listed == Ok(Outcome::Answered) {
                            return None;
                        }
                        sleep(EVERY).await;
                    }
                    Some(server.member_of(lane.session))
                });
            }
        }
        let partial = looking.join_all().await;
        partial.into_iter().flatten().collect()
    }
}

/// What a client of all servers calls a server's tool.
pub(super) fn exposed(server: Server, tool: &str) -> String {
    format!("{}{SEPARATOR}{tool}", server.name())
}

/// What a list of all tools says of this server, unless it lacks another one and does not say so.
pub(super) fn listed(server: Server, result: &Value) -> Outcome {
    let Some(tools) = result["tools"].as_array() else {
        return Outcome::Wrong(format!("the result {result}"));
    };
    let said = |server: Server| &result["_meta"]["bowline/servers"][server.name()];
    for server in Server::ALL {
        let prefix = exposed(server, "");
        let is_its = |tool: &&Value| {
            let name = tool["name"].as_str();
            name.is_some_and(|name| name.starts_with(&prefix))
        };
        if said(server).is_null() && tools.iter().filter(is_its).count() != TOOLS {
            return Outcome::Lacks;
        }
    }
    match said(server) {
        Value::Null => Outcome::Answered,
        said => Outcome::Missing(said.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_has_every_server_or_says_which_are_missing() {
        let list = |missing: Option<Server>, said: Value| {
            let there = Server::ALL.into_iter().filter(|one| Some(*one) != missing);
            let tools = there.flat_map(|server| {
                (0..TOOLS).map(move |tool| json!({"name": exposed(server, &tool.to_string())}))
            });
            let tools: Vec<_> = tools.collect();
            json!({"tools": tools, "_meta": {"bowline/servers": said}})
        };
        let whole = list(None, json!({}));
        assert_eq!(listed(Server::Streams, &whole), Outcome::Answered);
        let silent = list(Some(Server::Processes), json!({}));
        assert_eq!(listed(Server::Streams, &silent), Outcome::Lacks);
        let said = list(Some(Server::Processes), json!({"p": {"state": "absent"}}));
        assert_eq!(listed(Server::Streams, &said), Outcome::Answered);
        let own = listed(Server::Processes, &said);
        assert!(matches!(own, Outcome::Missing(_)), "{own:?}");
        let stale = list(None, json!({"p": {"state": "stale"}}));
        let stale = listed(Server::Processes, &stale);
        assert!(matches!(stale, Outcome::Missing(_)), "{stale:?}");
    }
}
