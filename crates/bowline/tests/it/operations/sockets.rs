//! A gateway that listens on a Unix socket: who may connect, and what they get.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use bowline::config::{Config, ListenAddress};
use bowline::{Gateway, SocketFileError, StartError};
use bowline_testbed::scripted::{Scripted, initialize_result};
use bowline_testbed::skip;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::log::Log;
use crate::kit::messages::{call, initialize_message};

/// A place for sockets, and one in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bowline.sock");
    (directory, path)
}

/// A configuration with these servers on this socket.
fn at_socket(path: &Path, servers: &[(&str, &str)]) -> Config {
    Config {
        listen: ListenAddress::Unix(path.to_owned()),
        ..config(servers)
    }
}

fn files(directory: &TempDir) -> Vec<String> {
    let files = std::fs::read_dir(directory.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_session_with_its_streams() {
    let (directory, path) = place();
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(at_socket(&path, &[("s", server.url())]))
        .await
        .unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let client = Client::by_socket(&path, "http://localhost/mcp/s");
    let client = client.opened(&mut server, "u").await;
    // An answer that streams, and the stream of a GET.
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(1))).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "notifications/x");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n");
    assert_eq!(events.next_message().await.1["id"], 1);
    drop(pen);
    let (mut heard, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/y\"}\n\n");
    assert_eq!(heard.next_message().await.1["method"], "notifications/y");
    drop((heard, pen));
    let (ended, ()) = tokio::join!(client.end(), async {
        loop {
            let asked = server.next().await;
            match asked.method == Method::DELETE {
                true => return asked.reply(200, &[], ""),
                false => asked.reply(405, &[], ""),
            }
        }
    });
    assert_eq!(ended.status, 204);
    gateway.stop().await;
    assert_eq!(files(&directory), [""; 0], "nothing stays behind");
    server.finish();
}

/// Clients of sockets have no name for them. Some have no path either: docker-agent asks for `/`.
#[tokio::test]
async fn any_host_and_the_bare_path_are_served_and_a_page_is_not() {
    let (_directory, path) = place();
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(at_socket(&path, &[("s", server.url())]))
        .await
        .unwrap();
    for url in [
        "http://localhost/",
        "http://localhost/mcp",
        "http://docker/mcp/s",
    ] {
        let client = Client::by_socket(&path, url);
        client.opened(&mut server, "u").await;
    }
    let client = Client::by_socket(&path, "http://localhost/mcp/s");
    let opening = client.post(&initialize_message());
    let page = sent(opening.header("origin", "http://localhost:3000")).await;
    assert_eq!(page.status, 403);
    assert_eq!(page.json()["error"]["data"]["reason"], "origin_not_allowed");
    drop(gateway);
    server.finish();
}

#[tokio::test]
async fn there_is_no_limit_for_strangers() {
    let (_directory, path) = place();
    let mut server = Scripted::start().await;
    let mut config = at_socket(&path, &[("s", server.url())]);
    config.limits.connections_per_address = 1;
    let gateway = Gateway::start(config).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(tokio::net::UnixStream::connect(&path).await.unwrap());
    }
    // More pages than an address may fetch at once.
    let page = Client::by_socket(&path, "http://localhost/oauth/start?flow=x");
    for _ in 0..100 {
        assert_ne!(sent(page.get()).await.status, 429);
    }
    let client = Client::by_socket(&path, "http://localhost/mcp/s");
    client.opened(&mut server, "u").await;
    drop((gateway, idle));
    server.finish();
}

#[tokio::test]
async fn a_second_gateway_does_not_start_and_the_first_goes_on() {
    let (directory, path) = place();
    let mut server = Scripted::start().await;
    let servers = [("s", server.url())];
    let first = Gateway::start(at_socket(&path, &servers)).await.unwrap();
    let second = Gateway::start(at_socket(&path, &servers)).await;
    let Err(StartError::Socket { source, .. }) = &second else {
        panic!("{second:?}");
    };
    assert!(matches!(source, SocketFileError::InUse), "{source}");
    let client = Client::by_socket(&path, "http://localhost/mcp/s");
    client.opened(&mut server, "u").await;
    // The place is free as soon as the first one stops.
    first.stop().await;
    assert_eq!(files(&directory), [""; 0]);
    let third = Gateway::start(at_socket(&path, &[("s", server.url())]));
    third.await.unwrap().stop().await;
    server.finish();
}

#[tokio::test]
async fn the_operator_has_a_socket_too() {
    let (directory, path) = place();
    let admin = directory.path().join("admin.sock");
    let mut config = at_socket(&path, &[("s", "http://127.0.0.1:9/")]);
    config.admin = Some(ListenAddress::Unix(admin.clone()));
    let gateway = Gateway::start(config).await.unwrap();
    let health = Client::by_socket(&admin, "http://anything/health");
    let health = sent(health.request(Method::GET)).await;
    assert_eq!(health.json()["status"], "ok", "{}", health.text);
    gateway.stop().await;
    assert_eq!(files(&directory), [""; 0]);
}

/// What curl says to the gateway's socket as another user.
fn curl_as_nobody(path: &Path) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .args([
            "curl",
            "-s",
            "-S",
            "--max-time",
            "20",
            "-w",
            "\n%{http_code}",
        ])
        .args(["-H", "content-type: application/json"])
        .args(["-H", "accept: application/json, text/event-stream"])
        .arg("-d")
        .arg(initialize_message().to_string())
        .arg("--unix-socket")
        .arg(path)
        .arg("http://localhost/mcp/s")
        .output()
        .unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    out + &error
}

#[tokio::test]
async fn another_user_is_refused() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let can_switch = Command::new("setpriv").arg("--version").output().is_ok();
    if !is_root || !can_switch {
        skip("another user at a Unix socket: only root can be another user (setpriv)");
        return;
    }
    let (directory, path) = place();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let server = Scripted::start().await;
    let gateway = Gateway::start(at_socket(&path, &[("s", server.url())]))
        .await
        .unwrap();
    let ask = async || {
        let path = path.clone();
        let asked = tokio::task::spawn_blocking(move || curl_as_nobody(&path));
        asked.await.unwrap()
    };
    // The mode of the file is the first obstacle.
    let said = ask().await;
    assert!(said.contains("000"), "{said}");
    // Somebody opened that up. The gateway still knows who connects.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let said = ask().await;
    assert!(said.contains("\"reason\":\"other_user\""), "{said}");
    assert!(said.ends_with("403"), "{said}");
    drop(gateway);
    // It never heard of the request.
    server.finish();
}

#[tokio::test]
async fn a_sign_in_needs_pages_that_a_browser_can_reach() {
    let (_directory, path) = place();
    let mut config = at_socket(&path, &[("s", "http://127.0.0.1:9/")]);
    config.servers.values_mut().next().unwrap().oauth = Some(Default::default());
    let refused = Gateway::start(config.clone()).await.unwrap_err();
    assert!(matches!(refused, StartError::SignIn { .. }), "{refused}");
    config.oauth.public_url = Some("https://gw.example.com".parse().unwrap());
    Gateway::start(config).await.unwrap().stop().await;
}

#[tokio::test]
async fn curl_talks_to_it() {
    let (_directory, path) = place();
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(at_socket(&path, &[("s", server.url())]))
        .await
        .unwrap();
    let asking = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--max-time", "20", "--unix-socket"])
                .arg(path);
            curl.args(["-H", "content-type: application/json"])
                .args(["-H", "accept: application/json, text/event-stream"])
                .args(["-d", &initialize_message().to_string(), "http://localhost/"]);
            String::from_utf8(curl.output().unwrap().stdout).unwrap()
        }
    });
    server.next().await.initialized(Some("u"));
    let answer: serde_json::Value = serde_json::from_str(&asking.await.unwrap()).unwrap();
    assert_eq!(answer["result"], json!(initialize_result()));
    drop(gateway);
    server.finish();
}

#[tokio::test]
async fn a_socket_that_others_can_replace_is_warned_of() {
    for (mode, is_warned) in [
        (0o700, false),
        (0o755, false),
        (0o1777, false),
        (0o777, true),
        (0o770, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), permissions).unwrap();
        let log = Log::default();
        let _kept = log.keep();
        let mut config = config(&[]);
        config.listen = ListenAddress::Unix(directory.path().join("s.sock"));
        Gateway::start(config).await.unwrap().stop().await;
        let warned = log.lines_with("other users can replace this socket");
        assert_eq!(warned.len(), usize::from(is_warned), "{mode:o} {warned:?}");
    }
}
