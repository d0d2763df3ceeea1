//! A key that others can read seals little: the operator is told.

#![cfg(unix)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use bowline::Gateway;
use bowline::config::{Server, ServerOAuth, StoreKind};

use crate::kit::gateway::config;
use crate::kit::log::Log;

const WARNING: &str = "key file is accessible to other users";

#[tokio::test]
async fn a_key_file_that_others_can_read_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let start = async || {
        let log = Log::default();
        let _kept = log.keep();
        let mut config = config(&[]);
        let path = directory.path().to_owned();
        config.store.kind = StoreKind::File { path };
        let mut server = Server::from_url("http://127.0.0.1:9/mcp").unwrap();
        server.oauth = Some(ServerOAuth::default());
        config.servers.insert("s".parse().unwrap(), server);
        Gateway::start(config).await.unwrap().stop().await;
        log.lines_with(WARNING)
    };
    assert_eq!(start().await, Vec::<String>::new(), "its own are private");
    for name in ["seal.key", "grants.key"] {
        let path = directory.path().join(name);
        for mode in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let warned = start().await;
            assert!(!warned.is_empty(), "{name} {mode:o}");
            assert!(warned.iter().all(|line| line.contains(name)), "{warned:?}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(start().await, Vec::<String>::new(), "{name}");
    }
    // Who can write to the directory replaces the file, unless the directory is sticky.
    for (mode, is_warned) in [
        (0o777, true),
        (0o770, true),
        (0o1777, false),
        (0o755, false),
    ] {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        assert_eq!(!start().await.is_empty(), is_warned, "{mode:o}");
    }
    // Only root may give a file away, and may still read it then.
    let path = directory.path().join("seal.key");
    if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
        let warned = start().await;
        assert!(!warned.is_empty(), "another's file");
        assert!(
            warned.iter().all(|line| line.contains("seal.key")),
            "{warned:?}"
        );
    }
}
