//! A gateway inside one program, for one client on a pair of byte streams: what `bowline connect` runs. It
//! listens for no clients, and its session is in memory. It serves one server, or several as one. Where a server wants a sign-in, it shows that in a
//! browser of this machine.

mod sign_ins;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_system::socket_owner;
use http::header::AUTHORIZATION;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::sign_ins::present;
use super::{StartError, assemble, local, stop, upkeep};
use crate::config::{Config, Limits, Server, ServerName, Target, Union};
use crate::front::callback::Callbacks;
use crate::front::stdio;
use crate::hub::Hub;
use crate::route::Way;
use crate::upstream::Upstream;

/// How long the end of the session may take at the server, after the client has left.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How many requests one client may have under way: what every machine has file descriptors for.
const MAX_STREAMS: usize = 1024;

/// Opens a URL, which has no secret, in the person's browser. `false` if that is not possible.
pub type OpenBrowser = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A gateway for one client. Dropping it stops it.
#[derive(Debug)]
pub struct Bridge {
    hub: Arc<Hub>,
    /// What the client talks to, as a path.
    path: String,
}

impl Bridge {
    /// A bridge to this server. Of the configuration it uses limits, OAuth settings, and the store, where
    /// grants are kept. Without a browser, the client is asked to show where to sign in.
    pub async fn start(
        config: Config,
        name: ServerName,
        server: Server,
        browser: Option<OpenBrowser>,
    ) -> Result<Self, StartError> {
        let config = Config {
            servers: [(name, server)].into(),
            union: Union::default(),
            unions: BTreeMap::new(),
            ..config
        };
        Self::start_at("/mcp".to_owned(), config, browser).await
    }

    /// A bridge to all servers of this configuration as one, or to those of the union with this name.
    pub async fn start_union(
        config: Config,
        union: Option<&ServerName>,
        browser: Option<OpenBrowser>,
    ) -> Result<Self, StartError> {
        let path = match union {
            Some(union) => format!("/mcp/{union}"),
            None => "/mcp".to_owned(),
        };
        Self::start_at(path, config, browser).await
    }

    async fn start_at(
        path: String,
        mut config: Config,
        browser: Option<OpenBrowser>,
    ) -> Result<Self, StartError> {
        for server in config.servers.values_mut().filter(|one| can_sign_in(one)) {
            *server = local::with_oauth(server);
        }
        // A link without a secret leads on nobody but this user's browsers, if the system knows those.
        let browser = browser.filter(|_| socket_owner::IS_KNOWN);
        let (callbacks, started) = Callbacks::new(browser.is_some());
        let config = Config {
            // Whoever starts the bridge is its only caller.
            callers: Default::default(),
            stop_timeout: STOP_TIMEOUT,
            limits: Limits {
                streams: config.limits.streams.min(MAX_STREAMS),
                connections: config.limits.connections.min(MAX_STREAMS),
                ..config.limits
            },
            ..config
        };
        let hub = assemble::hub_of_bridge(config, callbacks).await?;
        upkeep::keep_tidy(&hub);
        present(&hub, started, browser);
        Ok(Self { hub, path })
    }

    /// The server.
    pub(crate) fn upstream(&self) -> Option<Arc<Upstream>> {
        self.hub.routes.only()
    }

    /// Ends what runs for the server.
    pub(crate) async fn stop(&self) {
        stop::stop(&self.hub).await;
    }

    /// Serves a client until it closes its output or `stop` is done, and ends its session.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin + Send,
        output: impl AsyncWrite + Unpin + Send + 'static,
        stop: impl Future<Output = ()> + Send,
    ) {
        let hub = Arc::clone(&self.hub);
        let Ok(Way { to, .. }) = hub.routes.by_path(&self.path) else {
            return;
        };
        let stopping = CancellationToken::new();
        let serving = stdio::serve(hub, to, input, output, stopping.clone());
        let stopper = async {
            stop.await;
            stopping.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            () = stopper => {}
        }
        self.stop().await;
    }
}

/// Whether a person can sign in at this server. A key of its own in its headers is what it gets otherwise.
fn can_sign_in(server: &Server) -> bool {
    let is_remote = !matches!(server.target, Target::Command(_));
    is_remote && !server.headers.contains_key(AUTHORIZATION)
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.hub.drain.begin();
        self.hub.drain.close();
        stop::end_streams(&self.hub);
    }
}
