//! A thousand sessions with a process each, opened and closed: neither the gateway nor its supervisor keeps
//! anything of them.

use std::path::Path;
use std::time::Duration;

use bowline_testbed::client::Client;
use tokio::task::JoinSet;

use crate::running::{Running, word_ending_in};

const CYCLES: usize = 1_000;
const AT_ONCE: usize = 10;
const LIMIT: Duration = Duration::from_secs(60);

/// A server that opens a session, and does nothing.
const SERVER: &str = r#"read -r line; printf '%s\n' '{"jsonrpc":"2.0","id":"open","result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'; exec cat >/dev/null"#;

/// What a process has.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    descriptors: usize,
    threads: usize,
    children: Vec<u32>,
}

impl Counted {
    fn of(pid: u32) -> Self {
        // Whose descriptors may not be listed still shows their number.
        let count = |what: &str| {
            let path = format!("/proc/{pid}/{what}");
            match std::fs::read_dir(&path) {
                Ok(entries) => entries.count(),
                Err(_) => usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap(),
            }
        };
        let text = |task: &Path| std::fs::read_to_string(task.join("children")).unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let children: Vec<String> = tasks.map(|task| text(&task.unwrap().path())).collect();
        let children = children.iter().flat_map(|text| text.split_whitespace());
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            children: children.map(|pid| pid.parse().unwrap()).collect(),
        }
    }
}

/// Opens and ends sessions, several at once.
async fn cycle(url: &str, times: usize) {
    let mut running = JoinSet::new();
    for _ in 0..times {
        if running.len() == AT_ONCE {
            running.join_next().await.unwrap().unwrap();
        }
        let mut client = Client::new(url).unwrap();
        running.spawn(async move {
            assert_eq!(client.open().await.unwrap().status, 200);
            assert_eq!(client.delete().await.unwrap().status, 204);
        });
    }
    running.join_all().await;
}

/// Waits until a process has no child but those `kept`, and no more of anything than `before`.
async fn settles(pid: u32, before: Option<&Counted>, kept: usize) -> Counted {
    let settling = async {
        loop {
            let now = Counted::of(pid);
            let is_no_more = before.is_none_or(|before| {
                now.descriptors <= before.descriptors && now.threads <= before.threads
            });
            if is_no_more && now.children.len() == kept {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let settled = tokio::time::timeout(LIMIT, settling).await;
    settled.unwrap_or_else(|_| panic!("before {before:?}, now {:?}", Counted::of(pid)))
}

#[tokio::test]
async fn a_thousand_sessions_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bowline.toml");
    let text = format!(
        "admin = \"off\"\n[store]\nkind = \"memory\"\n[servers.s]\ncommand = ['/bin/sh', '-c', '''{SERVER}''']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut gateway = Running::start(&["--config", config.to_str().unwrap()]);
    let url = word_ending_in(&gateway.stdout.read_until("/mcp/s"), "/mcp/s");

    // The supervisor, and what the runtime starts once.
    cycle(&url, 2 * AT_ONCE).await;
    let at_first = settles(gateway.pid(), None, 1).await;
    let supervisor = at_first.children[0];
    let its = settles(supervisor, None, 0).await;
    cycle(&url, CYCLES).await;
    let after = settles(gateway.pid(), Some(&at_first), 1).await;
    assert_eq!(after.children, [supervisor]);
    settles(supervisor, Some(&its), 0).await;

    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));
    assert!(!Path::new(&format!("/proc/{supervisor}")).exists());
}
