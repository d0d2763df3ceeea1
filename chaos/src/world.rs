//! What stands behind the gateway: counting replicas, each behind a proxy that breaks things.

use std::io;

use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::Faulty;

/// The replicas and what they count.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) tally: Tally,
}

/// A replica and the proxy before it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) server: Counting,
    pub(crate) proxy: Faulty,
}

impl World {
    pub(crate) async fn start(count: usize) -> io::Result<Self> {
        let tally = Tally::default();
        let mut replicas = Vec::new();
        for number in 0..count {
            let server = Counting::start(&format!("r{number}"), &tally).await?;
            let proxy = Faulty::start(server.address()).await?;
            replicas.push(Replica { server, proxy });
        }
        Ok(Self { replicas, tally })
    }

    /// Where the gateway finds the replicas, separated by commas.
    pub(crate) fn urls(&self) -> String {
        let urls: Vec<_> = self.replicas.iter().map(|one| one.proxy.url()).collect();
        urls.join(",")
    }
}

impl Replica {
    /// Gone, as if its machine were.
    pub(crate) async fn kill(&self) {
        self.proxy.refuse().await;
        self.server.die().await;
        self.proxy.break_connections();
    }

    /// Back, and nothing is wrong with it.
    pub(crate) fn heal(&self) -> io::Result<()> {
        self.proxy.pass();
        self.server.come_back()?;
        self.proxy.accept()
    }
}
