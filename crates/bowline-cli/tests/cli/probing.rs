//! `bowline probe`: its screen and its JSON, for servers with all sorts of habits. With real servers:
//! `interop/probe/run.py`.

#[path = "probing/failing.rs"]
mod failing;
#[path = "probing/model.rs"]
mod model;

use std::process::Command;

use bowline_testbed::answering::Said;
use serde_json::{Value, json};
use snapbox::{assert_data_eq, str};

use self::model::{Habits, Model};
use crate::running::{bowline, run};

/// What a probe with these options prints, and its exit code.
async fn probe(options: &[&str]) -> (Option<i32>, String) {
    let mut command = command(options);
    let ran = tokio::task::spawn_blocking(move || run(&mut command));
    let (code, stdout, stderr) = ran.await.unwrap();
    assert_eq!(stderr, "");
    (code, stdout)
}

fn command(options: &[&str]) -> Command {
    let mut command = bowline();
    command.env("XDG_STATE_HOME", tempfile::tempdir().unwrap().path());
    command.arg("probe").args(options);
    command
}

/// The JSON of a probe.
async fn report(options: &[&str]) -> (Option<i32>, Value) {
    // Before `--`, if there is one.
    let (code, stdout) = probe(&[&["--json"], options].concat()).await;
    (code, serde_json::from_str(&stdout).unwrap())
}

/// The names of the findings.
fn findings(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_server() {
    let model = Model::start(Habits::default()).await;
    let (code, screen) = probe(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    assert_data_eq!(
        screen,
        str![[r#"
http://127.0.0.1:[..]/mcp

  Server        model 1.2
  Transport     streamable HTTP
  Protocol      2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05
  Capabilities  tools
  Offers        2 tools (1 safe to repeat)
  Sessions      session ids; an unknown one gets 404; DELETE gets 204
  Streams       answers as events; GET opens a stream; event ids, so it can be resumed
  Ping          [..] ms (median of 5)

Behind Bowline:
  A session that it loses is noticed (404) and opened again, and the client keeps its own.
  A stream that breaks is resumed after its last event.
  A call that may have run is repeated for 1 of 2 tools: those that say that they can be called twice.

It works.

"#]]
    );
    let live = model.sessions.lock().live.clone();
    assert!(live.is_empty(), "sessions that were not ended: {live:?}");
    let methods = model.methods().into_iter().collect::<Vec<_>>();
    let harmless = [
        "initialize",
        "notifications/initialized",
        "ping",
        "server/discover",
        "tools/list",
    ];
    assert_eq!(methods, harmless);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_everything_under_stable_names() {
    let model = Model::start(Habits {
        cookies: &["route=s3cret; Path=/; HttpOnly"],
        ..Habits::default()
    })
    .await;
    let (code, mut report) = report(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    let median = report["ping"]["median_ms"].take();
    assert!(median.as_f64().unwrap() > 0.0, "{median}");
    let accepted = |version: &str| json!({"offered": version, "answered": version});
    let expected = json!({
        "server": model.url(),
        "endpoints": 1,
        "transport": "streamable_http",
        "era": "legacy",
        "versions": [
            accepted("2025-11-25"), accepted("2025-06-18"), accepted("2025-03-26"), accepted("2024-11-05"),
        ],
        "server_info": {"name": "model", "version": "1.2"},
        "capabilities": ["tools"],
        "sessions": {
            "has_ids": true,
            "unknown_id": {"status": 404, "code": null, "text": null, "is_recognized": true, "rule": null},
            "delete_status": 204,
            "after_delete_status": 404,
        },
        "cookies": [{"name": "route", "attributes": ["Path=/", "HttpOnly"], "is_sent_back": true}],
        "streams": {"answers_with_events": true, "offers_get": true, "get_status": 200, "has_event_ids": true},
        "sign_in": null,
        "tools": {"count": 2, "pages": 1, "has_more": false, "safe_to_repeat": 1, "error": null},
        "prompts": null,
        "resources": null,
        "ping": {"sent": 5, "answered": 5, "median_ms": null},
        "unfinished": null,
        "outlook": [
            "A session that it loses is noticed (404) and opened again, and the client keeps its own.",
            "Its cookies are kept with each session.",
            "A stream that breaks is resumed after its last event.",
            "A call that may have run is repeated for 1 of 2 tools: those that say that they can be called twice.",
        ],
        "verdict": "works",
        "findings": [],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&report[name], value, "{name}");
    }
    let names = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&report), names(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_that_bowline_would_not_notice_gets_a_rule() {
    // The error names the request, so it is the server's own answer to it.
    let model = Model::start(Habits {
        lost: |seen| {
            let error = json!({"code": -32000, "message": "No valid session ID"});
            Said::json(&json!({"jsonrpc": "2.0", "id": seen.json()["id"], "error": error}))
                .instead(400)
        },
        ..Habits::default()
    })
    .await;
    let (code, screen) = probe(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    let (_, remarks) = screen.split_once("It works, ").unwrap();
    assert_data_eq!(
        remarks,
        str![[r#"
with remarks.

remark: it answers 400 to a session id that it does not know (No valid session ID), where the protocol says 404
  why: Bowline would not notice that the server lost a session, and clients would get this error
  do: write in the configuration:
      [[servers.NAME.session_lost]]
      status = 400
      code = -32000
      text = "No valid session ID"

"#]]
    );
    // With that rule, Bowline notices it.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bowline.toml");
    let (_, rule) = remarks.split_once("[[servers.NAME").unwrap();
    let text = format!(
        "[servers.NAME]\nurl = \"{}\"\n[[servers.NAME{rule}",
        model.url()
    );
    std::fs::write(&file, text).unwrap();
    let (code, report) = report(&["NAME", "-c", file.to_str().unwrap()]).await;
    assert_eq!((code, &report["verdict"]), (Some(0), &json!("works")));
    assert_eq!(report["server"], "NAME");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_400_for_a_lost_session_is_noticed_by_a_ping() {
    let model = Model::start(Habits {
        lost: |_| Said::status(400),
        ..Habits::default()
    })
    .await;
    let (_, report) = report(&[&model.url()]).await;
    let unknown = &report["sessions"]["unknown_id"];
    assert_eq!(
        (&unknown["status"], &unknown["is_recognized"]),
        (&json!(400), &json!(true))
    );
    assert_eq!(report["verdict"], "works");
    assert!(report["outlook"][0].as_str().unwrap().contains("by a ping"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_any_session_id() {
    let model = Model::start(Habits {
        lost: |seen| seen.result(&json!({})),
        ..Habits::default()
    })
    .await;
    let (code, report) = report(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    assert_eq!(findings(&report), ["ids_ignored", "end_ignored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_session_ids() {
    let habits = Habits {
        has_ids: false,
        ..Habits::default()
    };
    let model = Model::start(habits).await;
    let (code, screen) = probe(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    assert!(
        screen.contains("  Sessions      no session ids\n"),
        "{screen}"
    );
    assert!(screen.contains("It has no sessions to lose"), "{screen}");
    assert!(screen.ends_with("\nIt works.\n"), "{screen}");
    let deleted = model.server.seen().iter().any(|it| it.method == "DELETE");
    assert!(!deleted, "there is nothing to end");
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_shown_without_their_values() {
    let model = Model::start(Habits {
        cookies: &["route=s3cret; Path=/", "AWSALB=s3cret; Path=/; Secure"],
        ..Habits::default()
    })
    .await;
    let (code, screen) = probe(&[&model.url()]).await;
    assert_eq!(code, Some(0));
    assert!(!screen.contains("s3cret"), "{screen}");
    assert!(
        screen.contains("  Cookie        route (Path=/)\n"),
        "{screen}"
    );
    assert!(
        screen.contains("  Cookie        AWSALB (Path=/; Secure)\n"),
        "{screen}"
    );
    assert!(
        screen.contains("remark: the cookie AWSALB does not get back to the server\n"),
        "{screen}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_followed_and_not_for_ever() {
    let page = |cursor: &str| {
        let next = cursor.parse().unwrap_or(0) + 1;
        let tool = json!({"name": cursor, "inputSchema": {}});
        match next {
            3 => json!({"tools": [tool, tool]}),
            _ => json!({"tools": [tool], "nextCursor": next.to_string()}),
        }
    };
    let model = Model::start(Habits {
        tools: page,
        ..Habits::default()
    })
    .await;
    let (_, three) = report(&[&model.url()]).await;
    assert_eq!(
        (&three["tools"]["count"], &three["tools"]["pages"]),
        (&json!(4), &json!(3))
    );
    let endless = Model::start(Habits {
        tools: |_| json!({"tools": [], "nextCursor": "again"}),
        ..Habits::default()
    })
    .await;
    let (_, report) = report(&[&endless.url()]).await;
    assert_eq!(report["tools"]["has_more"], true);
    assert_eq!(findings(&report), ["list_endless"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_repeats_of_its_request_is_not_shown() {
    let model = Model::start(Habits {
        name: |seen| format!("\u{1b}[31m{} {}", seen.header("x-key"), seen.target),
        ..Habits::default()
    })
    .await;
    let url = format!("{}?key=query-s3cret", model.url());
    for json in [&[][..], &["--json"]] {
        let options = [&[&url, "--header", "X-Key: header-s3cret"], json].concat();
        let (code, printed) = probe(&options).await;
        assert_eq!(code, Some(0));
        assert!(!printed.contains("s3cret"), "{printed}");
        assert!(!printed.contains('\u{1b}'), "{printed}");
    }
}
