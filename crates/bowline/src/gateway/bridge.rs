//! A gateway inside one program, for one client on a pair of byte streams: what `bowline connect` runs. It
//! listens for no clients, and its session is in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{StartError, assemble, stop, upkeep};
use crate::config::{Config, Server, ServerName};
use crate::front::stdio;
use crate::hub::Hub;

/// How long the end of the session may take at the server, after the client has left.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A gateway for one client and one server. Dropping it stops it.
#[derive(Debug)]
pub struct Bridge {
    hub: Arc<Hub>,
}

impl Bridge {
    /// A bridge to this server. Of the configuration it uses limits, OAuth settings, and the store, where
    /// grants are kept.
    pub async fn start(
        config: Config,
        name: ServerName,
        server: Server,
    ) -> Result<Self, StartError> {
        let config = Config {
            servers: [(name, server)].into(),
            // Whoever starts the bridge is its only caller.
            callers: Default::default(),
            stop_timeout: STOP_TIMEOUT,
            ..config
        };
        let hub = assemble::hub_of_bridge(config).await?;
        upkeep::keep_tidy(&hub);
        Ok(Self { hub })
    }

    /// Serves a client until it closes its output or `stop` is done, and ends its session.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin + Send,
        output: impl AsyncWrite + Unpin + Send + 'static,
        stop: impl Future<Output = ()> + Send,
    ) {
        let hub = Arc::clone(&self.hub);
        let Some(upstream) = hub.routes.only() else {
            return;
        };
        let stopping = CancellationToken::new();
        let serving = stdio::serve(hub, upstream, input, output, stopping.clone());
        let stopper = async {
            stop.await;
            stopping.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            () = stopper => {}
        }
        stop::stop(&self.hub).await;
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.hub.drain.begin();
        self.hub.drain.close();
        stop::end_streams(&self.hub);
    }
}
