//! The disk that sessions are kept on fills up: nothing that was confirmed is lost, what is known goes
//! on, the gateway says what is wrong, and once there is room sessions open again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::json;

use crate::kit::across::with_grace;
use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{admin, config, health};
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::in_file;
use crate::kit::wait::until_so;

/// A disk of two megabytes. Unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`: it cannot be mounted here.
    fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(at);
        let mounted = mount.output().ok()?;
        mounted.status.success().then(|| Self(at.to_owned()))
    }

    /// Leaves no room, down to the last byte.
    fn fill(&self) {
        let mut bytes = 1 << 20;
        for number in 0.. {
            let file = self.0.join(format!("filler-{number}"));
            if fs::write(&file, vec![1; bytes]).is_err() {
                bytes /= 2;
            }
            if bytes < 512 {
                return;
            }
        }
    }

    fn make_room(&self) {
        for entry in fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("filler")
            {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).output().ok();
    }
}

async fn works(client: &Client, server: &mut Scripted, upstream: &str) {
    let message = call("works");
    let answer = client.send_to(server, &message, |asked| {
        assert_eq!(asked.header("mcp-session-id"), upstream);
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.status, 200);
}

/// Opens sessions until one cannot be kept; rows find room in the file itself for a while.
async fn opens_until_full(gateway: &Gateway, server: &mut Scripted, clients: &mut Vec<Client>) {
    loop {
        let mut newcomer = Client::new(gateway);
        let name = format!("u{}", clients.len());
        let answer = {
            let initializing = newcomer.initialize();
            tokio::pin!(initializing);
            loop {
                tokio::select! {
                    answer = &mut initializing => break answer,
                    asked = server.next() => match asked.method.as_str() {
                        "DELETE" => asked.reply(204, &[], ""),
                        _ => asked.initialized(Some(&name)),
                    },
                }
            }
        };
        if answer.status == 503 {
            let error = answer.json()["error"].clone();
            assert_eq!(error["data"]["reason"], "store_refused", "{error}");
            assert!(answer.headers.contains_key("retry-after"));
            return;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        clients.push(newcomer);
        assert!(clients.len() < 5000, "it never filled up");
    }
}

#[tokio::test]
async fn a_disk_that_fills_up_costs_no_session_and_needs_no_restart() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path()) else {
        bowline_testbed::skip("a disk that fills up: a small tmpfs cannot be mounted here");
        return;
    };
    let log = Log::default();
    let _kept = log.keep();
    let mut server = Scripted::start().await;
    let started = async |server: &Scripted| {
        let mut config = config(&[("s", server.url())]);
        config.store = in_file(&disk.0.join("state"));
        config.store.cache = 1;
        with_grace(&mut config);
        Gateway::start(config).await
    };
    let gateway = started(&server).await.unwrap();
    let mut clients = Vec::new();
    for number in 0..5 {
        let client = Client::open(&gateway, &mut server, &format!("u{number}")).await;
        clients.push(client);
    }
    disk.fill();
    opens_until_full(&gateway, &mut server, &mut clients).await;
    // The server's session of the one that could not be kept.
    let told = tokio::time::timeout(PATIENCE, async {
        if let Ok(asked) = tokio::time::timeout(Duration::from_millis(500), server.next()).await {
            assert_eq!(asked.method, "DELETE");
            asked.reply(204, &[], "");
        }
        loop {
            let told = health(&gateway).await;
            if told["store"]["status"] == "refusing" {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let told = told.await.expect("it never says so");
    let reason = told["store"]["reason"].as_str().unwrap();
    assert!(reason.contains("its disk is full"), "{told}");
    assert_eq!(admin(&gateway, "/ready").await.status, 200);
    // What was confirmed is there, also what has to be read.
    for (number, client) in clients.iter().enumerate() {
        works(client, &mut server, &format!("u{number}")).await;
    }
    disk.make_room();
    until_so("the store is well", async || {
        health(&gateway).await["store"]["status"] == "ok"
    })
    .await;
    let after = Client::open(&gateway, &mut server, "after").await;
    works(&after, &mut server, "after").await;
    let said = log.lines_with("store refuses writes");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("free space"), "{said:?}");
    assert_eq!(log.lines_with("store accepts writes again").len(), 1);
    // And still after a restart.
    gateway.stop().await;
    let restarting = async {
        loop {
            // The file is free when the last connection has let go of it.
            match started(&server).await {
                Ok(gateway) => break gateway,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let restarted = tokio::time::timeout(PATIENCE, restarting).await;
    let gateway = restarted.expect("the file is never free");
    for (number, client) in clients.iter_mut().enumerate() {
        *client = client.moved_to(&gateway);
        works(client, &mut server, &format!("u{number}")).await;
    }
}

/// Calls in a session of which the server knows only what it opened as this, and notes what it opens.
async fn calls_in_lost(
    client: &Client,
    server: &mut Scripted,
    as_this: &str,
    opened: &mut usize,
) -> Answer {
    let message = call("lost");
    let sent = client.send(&message);
    tokio::pin!(sent);
    loop {
        tokio::select! {
            answer = &mut sent => return answer,
            asked = server.next() => {
                if asked.rpc_method() == "initialize" {
                    *opened += 1;
                    asked.initialized(Some(as_this));
                } else if asked.method == "DELETE" {
                    asked.reply(204, &[], "");
                } else if asked.header("mcp-session-id") == as_this {
                    asked.result(&json!({}));
                } else {
                    forgot(asked);
                }
            }
        }
    }
}

#[tokio::test]
async fn what_could_not_be_written_is_not_opened_at_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path()) else {
        bowline_testbed::skip("a disk that fills up: a small tmpfs cannot be mounted here");
        return;
    };
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.store = in_file(&disk.0.join("state"));
    with_grace(&mut config);
    for server in config.servers.values_mut() {
        server.recovery.budget = Duration::from_secs(1);
    }
    let gateway = Gateway::start(config).await.unwrap();
    let mut clients = vec![Client::open(&gateway, &mut server, "u0").await];
    disk.fill();
    opens_until_full(&gateway, &mut server, &mut clients).await;
    let mut opened = 0;
    for _ in 0..5 {
        let answer = calls_in_lost(&clients[0], &mut server, "again", &mut opened).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    assert_eq!(opened, 0, "upstream sessions for one that cannot be kept");
    disk.make_room();
    until_so("the store is well", async || {
        health(&gateway).await["store"]["status"] == "ok"
    })
    .await;
    // It is recovered once.
    let recovering = async {
        while calls_in_lost(&clients[0], &mut server, "again", &mut opened)
            .await
            .status
            != 200
        {}
    };
    let recovered = tokio::time::timeout(PATIENCE, recovering).await;
    assert!(recovered.is_ok(), "it is not recovered when there is room");
    assert_eq!(opened, 1);
}
