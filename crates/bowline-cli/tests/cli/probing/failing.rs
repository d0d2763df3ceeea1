//! Servers that Bowline does not work with, and calls that cannot work.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bowline_testbed::answering::{Answering, Gate, Said, Seen};
use serde_json::{Value, json};
use snapbox::{assert_data_eq, str};

use super::{command, findings, probe, report};
use crate::running::run;

/// The report on a server that does not work.
async fn broken(rule: impl Fn(&Seen) -> Said + Send + Sync + 'static) -> Value {
    let server = Answering::start(rule).await;
    let (code, report) = report(&[&format!("http://{}/mcp", server.address())]).await;
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["verdict"], "does_not_work");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_is_no_server() {
    let page = |_: &Seen| Said::json_text("<html>").with("content-type", "text/html");
    let server = Answering::start(move |seen| {
        let mut said = page(seen);
        if seen.method == "GET" {
            said = Said::status(200);
        }
        said
    })
    .await;
    let (code, screen) = probe(&[&format!("http://{}/", server.address())]).await;
    assert_eq!(code, Some(1));
    assert_data_eq!(
        screen,
        str![[r#"
http://127.0.0.1:[..]/

It does not work.

problem: the server answered 200 with [..], which is not MCP
  why: an MCP server answers `initialize` with JSON or a stream of events
  do: check the path of the URL: it is often /mcp

"#]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_path() {
    let report = broken(|_| Said::status(404)).await;
    assert_eq!(findings(&report), ["initialize_refused"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_every_session_at_once() {
    let report = broken(|seen| match seen.json()["method"].as_str() {
        Some("initialize") => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"}});
            seen.result(&result).with("mcp-session-id", "u")
        }
        _ => Said::status(404),
    })
    .await;
    assert_eq!(findings(&report)[0], "answers_nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_is_not_sticky() {
    let turns = AtomicUsize::new(0);
    let report = broken(move |seen| match seen.json()["method"].as_str() {
        Some("initialize") => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"}});
            seen.result(&result).with("mcp-session-id", "u")
        }
        _ if turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => Said::status(404),
        _ => seen.result(&json!({"tools": []})),
    })
    .await;
    assert!(findings(&report).contains(&"not_sticky"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_old_transport_that_does_not_say_so() {
    let report = broken(|seen| match seen.method.as_str() {
        "GET" => {
            let (said, mut pen) = Said::events();
            pen.write("event: endpoint\ndata: /messages?id=1\n\n");
            said
        }
        _ => Said::status(415),
    })
    .await;
    assert_eq!(findings(&report), ["http_sse"]);
    assert_eq!(
        (&report["transport"], &report["era"]),
        (&json!("http_sse"), &json!("legacy"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_sessions_only() {
    let report = broken(|seen| {
        let message = seen.json();
        let is_modern = seen.header("mcp-protocol-version") == "2026-07-28"
            && seen.header("mcp-method") == "server/discover"
            && message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
                == "2026-07-28";
        match is_modern {
            true => seen.result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {}})),
            false => Said::status(400),
        }
    })
    .await;
    assert_eq!(findings(&report), ["modern_only"]);
    assert_eq!(report["era"], "modern");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_without_metadata() {
    for challenge in ["Basic realm=\"x\"", "Bearer"] {
        let report = broken(move |_| match challenge {
            "Bearer" => Said::status(401).with("www-authenticate", challenge),
            _ => Said::status(401),
        })
        .await;
        assert_eq!(findings(&report)[0], "no_sign_in", "{report}");
        let error = "the server publishes no OAuth metadata";
        assert_eq!(report["sign_in"]["error"], error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_oauth() {
    let server = Answering::start(|seen| {
        let origin = format!("http://{}", seen.header("host"));
        match seen.path() {
            "/.well-known/oauth-protected-resource/mcp" => Said::json(&json!({
                "resource": format!("{origin}/mcp"), "authorization_servers": [origin], "scopes_supported": ["read"],
            })),
            "/.well-known/oauth-authorization-server" => Said::json(&json!({
                "issuer": origin,
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "registration_endpoint": format!("{origin}/register"),
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
            })),
            "/mcp" => Said::status(401).with("www-authenticate", "Bearer realm=\"x\""),
            _ => Said::status(404),
        }
    })
    .await;
    let url = format!("http://{}/mcp", server.address());
    let (code, screen) = probe(&[&url]).await;
    assert_eq!(code, Some(0));
    assert_data_eq!(
        screen,
        str![[r#"
http://127.0.0.1:[..]/mcp

  Transport     streamable HTTP
  Sign-in       required (401); at http://127.0.0.1:[..], which registers clients; scopes read

It works, with remarks.

remark: it demands a sign-in, so nothing behind that was examined
  why: each caller signs in once; Bowline refreshes the token
  do: sign in with `bowline login http://127.0.0.1:[..]/mcp` and probe again; configure `[servers.NAME.oauth]`

"#]]
    );
    let registered = server.seen_at("/register");
    assert!(registered.is_empty(), "a probe registers no client");
    let header = "Authorization: Bearer s3cret-token";
    let (code, report) = report(&[&url, "--header", header]).await;
    assert_eq!(
        (code, findings(&report)),
        (Some(1), vec!["credentials_refused"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer() {
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    let server = Answering::start(move |_| Said::status(200).behind(&own)).await;
    let url = format!("http://{}/mcp", server.address());
    let (code, report) = report(&[&url, "--timeout", "500ms"]).await;
    assert_eq!((code, findings(&report)), (Some(1), vec!["silent"]));
    assert_eq!(report["unfinished"], "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_without_end() {
    let report = broken(|_| {
        let (said, mut pen) = Said::events();
        for _ in 0..9 {
            pen.write(format!("data: {}\n\n", "x".repeat(1024 * 1024)));
        }
        said
    })
    .await;
    assert_eq!(findings(&report), ["bad_initialize"]);
    assert_eq!(report["findings"][0]["what"], "the server sent too much");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_and_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        // SETTINGS with one setting, then GOAWAY.
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        stream.write_all(&settings).unwrap();
        stream.write_all(&goaway).unwrap();
    });
    let (code, report) = report(&[&url]).await;
    answering.join().unwrap();
    assert_eq!((code, findings(&report)), (Some(1), vec!["no_answer"]));
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("speaks HTTP/2 only"), "{what}");
    // The listener is closed.
    let (code, screen) = probe(&[&url]).await;
    assert_eq!(code, Some(1));
    assert!(screen.contains("problem: cannot connect: "), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_exits_and_one_that_is_silent() {
    let (code, report) = report(&["--", "sh", "-c", "echo no such thing >&2; exit 3"]).await;
    assert_eq!((code, findings(&report)), (Some(1), vec!["process_failed"]));
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("no such thing"), "{what}");
    assert_eq!(report["server"], "sh");
    let options = ["--timeout", "500ms", "--", "sleep", "600"];
    let (code, report) = super::report(&options).await;
    assert_eq!((code, findings(&report)), (Some(1), vec!["silent"]));
}

#[test]
fn calls_that_cannot_work() {
    for (options, said) in [
        (&[][..], "the server is missing"),
        (&["files"], "`files` is not a URL"),
        (&["http://s3cret@127.0.0.1/"], "user name or password"),
        (&["http://127.0.0.1/", "--", "cat"], "cannot be used with"),
        (
            &["http://127.0.0.1/", "--timeout", "1ms"],
            "from `100ms` to `1h`",
        ),
        (&["http://127.0.0.1/", "--header", "s3cret"], "no colon"),
    ] {
        let (code, stdout, stderr) = run(&mut command(options));
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{options:?}");
        assert!(stderr.contains(said), "{stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
}
