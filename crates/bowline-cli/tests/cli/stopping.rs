//! A gateway that is stopped for longer than its presence holds, and woken after another gateway has taken over
//! its sessions: their processes do not act side by side, and nothing runs twice.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use bowline_testbed::client::{Answer, Client};
use bowline_testbed::redis::Redis;
use bowline_testbed::stdio::{TALLY, serve};
use serde_json::json;

use crate::running::{Running, bowline, word_ending_in};

/// Longer than a presence holds, on a machine with much to do.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "not a test: the server of the other one"]
#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn server() {
    // Where the test harness does not write.
    let out = std::fs::File::options().write(true).open("/dev/fd/3");
    let tally = std::env::var(TALLY).ok().map(Into::into);
    serve(BufReader::new(std::io::stdin()), out.unwrap(), tally, "");
}

fn start(config: &Path, key: &str) -> (Running, String) {
    let mut command = bowline();
    command.env("BOWLINE_SEAL_KEYS", key);
    let options = ["--config", config.to_str().unwrap()];
    let gateway = Running::start_in(&mut command, "127.0.0.1:0", &options);
    let url = word_ending_in(&gateway.stdout.read_until("/mcp/s"), "/mcp/s");
    (gateway, url)
}

fn configure(folder: &Path, redis: &Redis) {
    let program = std::env::current_exe().unwrap();
    let script =
        r#"exec 3>&1 1>/dev/null; exec "$0" --exact stopping::server --ignored --nocapture"#;
    let text = format!(
        "admin = \"off\"\n[store]\nkind = \"redis\"\nurl = \"{}\"\n[servers.s]\n\
         command = ['/bin/sh', '-c', '{script}', '{}']\nenv = {{ {TALLY} = '{}' }}\n",
        redis.url(),
        program.display(),
        folder.join("tally").display(),
    );
    std::fs::write(folder.join("bowline.toml"), text).unwrap();
}

/// How often something was written down.
fn count(folder: &Path, what: &str) -> usize {
    let text = std::fs::read_to_string(folder.join("tally")).unwrap();
    text.lines().filter(|line| *line == what).count()
}

/// Which process ran a tool, if it ran.
fn pid(answer: &Answer) -> Option<String> {
    let text = answer.messages.last()?["result"]["content"][0]["text"].as_str();
    text.map(str::to_owned)
}

#[tokio::test]
async fn a_gateway_that_was_stopped_ends_what_another_has_taken_over() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    configure(folder, &redis);
    let key = bowline::SealKeys::generate().unwrap();
    let config = folder.join("bowline.toml");
    let ((mut owner, url), (mut other, elsewhere)) = (start(&config, &key), start(&config, &key));

    let mut client = Client::new(&url).unwrap();
    assert_eq!(client.open().await.unwrap().status, 200);
    let first = client.call(1, "bump", &json!({"key": "first"})).await;
    let old = pid(&first.unwrap()).unwrap();

    owner.signal("STOP");
    // It is read when the gateway goes on, and must not run in the old process.
    let mut late = client.twin();
    let arguments = json!({"key": "late"});
    let late = late.call(2, "bump", &arguments);
    let taking_over = async {
        let mut moved = client.moved_to(&elsewhere).unwrap();
        let new = loop {
            let answer = moved.call(3, "bump", &json!({"key": "taken over"})).await;
            let answer = answer.unwrap();
            match pid(&answer) {
                Some(new) => break new,
                None => assert_eq!(answer.status, 503, "{answer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        owner.signal("CONT");
        (moved, new)
    };
    let both = async { tokio::join!(late, taking_over) };
    let (late, (mut moved, new)) = tokio::time::timeout(LIMIT, both).await.unwrap();
    assert_ne!(old, new);
    let late = late.unwrap();
    assert_eq!(
        (late.status.as_u16(), count(folder, "bump late")),
        (503, 0),
        "{late:?}"
    );

    let is_gone = async {
        while Path::new(&format!("/proc/{old}")).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, is_gone).await.unwrap();
    let after = moved
        .call(4, "bump", &json!({"key": "after"}))
        .await
        .unwrap();
    assert_eq!(pid(&after), Some(new));
    for key in ["first", "taken over", "after"] {
        assert_eq!(count(folder, &format!("bump {key}")), 1, "{key}");
    }
    assert_eq!(
        count(folder, "heard notifications/initialized"),
        2,
        "two processes"
    );
    for gateway in [&mut owner, &mut other] {
        gateway.signal("TERM");
        assert_eq!(gateway.exit_code(), Some(0));
    }
}
