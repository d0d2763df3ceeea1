//! What stands behind the gateway: counting replicas, each behind a proxy that breaks things.

mod processes;

use std::io;
use std::path::PathBuf;

use bowline_testbed::certificates;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::Faulty;
use bowline_testbed::tls::Terminator;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Mutex;

pub(crate) use self::processes::{Processes, Start, since};
use crate::Arguments;
use crate::server::Server;
use crate::trouble::Trouble;

/// The name of the certificate that replicas with TLS share.
const CERTIFICATE: &str = "replica";

/// The replicas and what they count.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) tally: Tally,
    /// A server that is a command, if there is one.
    pub(crate) processes: Option<Processes>,
    /// Whether the replicas are also a server over HTTP+SSE.
    pub(crate) has_streams: bool,
    /// Whether they are also one over either transport.
    pub(crate) has_mixed: bool,
    /// Holds the certificates.
    directory: TempDir,
}

/// A replica and the proxy before it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) server: Counting,
    pub(crate) proxy: Faulty,
    tls: Option<Terminator>,
    /// Held while it dies: its port is free only then, and of two kills the first may be over before.
    dying: Mutex<()>,
}

impl World {
    pub(crate) async fn start(arguments: &Arguments) -> anyhow::Result<Self> {
        let tally = Tally::default();
        let directory = tempfile::tempdir()?;
        if arguments.tries(Trouble::Tls) {
            certificates::make(directory.path(), CERTIFICATE).await?;
        }
        let mut replicas = Vec::new();
        for number in 0..usize::from(arguments.replicas) {
            let server = Counting::start(&format!("r{number}"), &tally).await?;
            server.settings(|settings| {
                settings.all_tools = true;
                settings.capabilities["tools"] = json!({"listChanged": true});
                // One is as plain as can be, one chunks, one has TLS, and two of three escape.
                settings.chunked = number % 3 == 1 && arguments.tries(Trouble::Chunked);
                settings.escapes_slashes = number % 3 > 0 && arguments.tries(Trouble::Slashes);
            });
            let proxy = Faulty::start(server.address()).await?;
            let tls = if number % 3 == 2 && arguments.tries(Trouble::Tls) {
                let terminator =
                    Terminator::start(proxy.address(), directory.path(), CERTIFICATE).await?;
                Some(terminator)
            } else {
                None
            };
            replicas.push(Replica {
                server,
                proxy,
                tls,
                dying: Mutex::default(),
            });
        }
        let processes = match arguments.has(Server::Processes) {
            false => None,
            true => Some(Processes::new(arguments.tries(Trouble::JsonLogs))?),
        };
        Ok(Self {
            replicas,
            tally,
            processes,
            has_streams: arguments.has(Server::Streams),
            has_mixed: arguments.has(Server::Mixed),
            directory,
        })
    }

    /// Where the gateway finds the replicas, but for that one.
    pub(crate) fn urls(&self, without: Option<usize>) -> Vec<String> {
        let all = self.replicas.iter().enumerate();
        let left = all.filter(|(number, _)| Some(*number) != without);
        left.map(|(_, replica)| replica.url()).collect()
    }

    /// The same at another path: `/sse` for HTTP+SSE, `/either` for what each speaks at the time.
    pub(crate) fn urls_at(&self, path: &str, without: Option<usize>) -> Vec<String> {
        let urls = self.urls(without).into_iter();
        urls.map(|url| url.replace("/mcp", path)).collect()
    }

    /// The certificate that vouches for the replicas with TLS.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }
}

impl Replica {
    fn url(&self) -> String {
        match &self.tls {
            Some(tls) => tls.url(),
            None => self.proxy.url(),
        }
    }

    /// Gone, as if its machine were.
    pub(crate) async fn kill(&self) {
        let _dying = self.dying.lock().await;
        self.proxy.refuse().await;
        self.server.die().await;
        self.proxy.break_connections();
    }

    /// Back after a kill.
    pub(crate) async fn come_back(&self) -> io::Result<()> {
        let _alive = self.dying.lock().await;
        self.server.come_back()?;
        self.proxy.accept()
    }

    /// Back, and nothing is wrong with it.
    pub(crate) fn heal(&self) -> io::Result<()> {
        self.proxy.pass();
        self.server.come_back()?;
        self.proxy.accept()
    }
}
