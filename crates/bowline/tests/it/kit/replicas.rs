//! Real servers in several replicas.

use bowline_testbed::everything::{Replica, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) struct Replicas {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) urls: Vec<String>,
    _serving: JoinSet<std::io::Result<()>>,
    _stop: DropGuard,
}

pub(crate) async fn replicas(count: usize) -> Replicas {
    let replicas = (0..count).map(|number| Replica::new(format!("r{number}")));
    served(replicas.collect()).await
}

/// These, each at a port of its own.
pub(crate) async fn served(replicas: Vec<Replica>) -> Replicas {
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    let mut urls = Vec::new();
    for replica in &replicas {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        urls.push(format!("http://{}/mcp", listener.local_addr().unwrap()));
        serving.spawn(serve(listener, replica.clone(), stop.clone()));
    }
    Replicas {
        replicas,
        urls,
        _serving: serving,
        _stop: stop.drop_guard(),
    }
}
