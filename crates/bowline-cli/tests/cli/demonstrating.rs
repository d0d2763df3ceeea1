//! `bowline demo`: what it shows is what happened, so these tests read what it shows.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::running::{bowline, kill, run};

/// Where the right column begins, in characters.
const RIGHT: usize = 42;

/// What both clients got after each thing that was done: the columns of the rows in between.
fn acts(shown: &str) -> Vec<(String, Vec<[String; 2]>)> {
    let mut acts: Vec<(String, Vec<[String; 2]>)> = Vec::new();
    for line in shown.lines().skip(1).take_while(|line| !line.is_empty()) {
        if let Some(row) = line.strip_prefix("  ") {
            let left: String = row.chars().take(RIGHT - 2).collect();
            let right: String = row.chars().skip(RIGHT - 2).collect();
            let columns = [left, right].map(|text| text.trim().to_owned());
            acts.last_mut().unwrap().1.push(columns);
        } else {
            acts.push((line.to_owned(), Vec::new()));
        }
    }
    acts
}

fn number(cell: &str) -> Option<u64> {
    cell.split_whitespace().next()?.parse().ok()
}

#[test]
fn one_keeps_counting_and_the_other_fails() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("demo.svg");
    let (code, shown, stderr) = run(bowline().args(["demo", "--once", "--svg"]).arg(&picture));
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shown}");
    let acts = acts(&shown);
    let names: Vec<_> = acts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Both clients open a session, and count in it",
            "kill -9: the replica that has the session",
            "kill -9: the gateway, and the proxy. Both are started again",
            "The load balancer's cookie is lost: clients keep none from now on",
        ]
    );
    let calls = || acts.iter().flat_map(|(_, calls)| calls);
    let left: Vec<_> = calls().map(|[left, _]| number(left)).collect();
    assert_eq!(left, (1..=12).map(Some).collect::<Vec<_>>(), "{shown}");

    let right = |act: usize| acts[act].1.iter().map(|[_, right]| right.as_str());
    assert_eq!(
        right(0).map(number).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
    let lost = "✗  404: there is no such session";
    assert_eq!(right(1).next(), Some(lost), "{shown}");
    // It keeps nothing that a restart could lose.
    assert!(right(2).all(|cell| number(cell).is_some()), "{shown}");
    assert!(right(3).any(|cell| cell == lost), "{shown}");
    assert!(
        shown.contains("12 of 12 calls answered, 1 session "),
        "{shown}"
    );

    let drawn = std::fs::read_to_string(picture).unwrap();
    for text in names.iter().chain(&[lost]) {
        assert!(
            drawn.contains(&format!(">{text}<")) || drawn.contains(&format!("> {text}<")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_demo_that_was_killed() {
    let mut command = bowline();
    let temporary = tempfile::tempdir().unwrap();
    command.arg("demo").env("TMPDIR", temporary.path());
    let mut demo = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first call means that everything runs.
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let called = lines.find(|line| line.as_ref().unwrap().contains("replica 1"));
    assert!(called.is_some());
    let place = temporary.path().to_str().unwrap();
    assert!(running_with(place) >= 5, "four replicas and a gateway");
    kill(demo.id(), "KILL");
    demo.wait().unwrap();
    let gone = async {
        while running_with(place) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(waited.is_ok(), "{} processes are left", running_with(place));
}

/// How many processes have this in their command line.
fn running_with(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines =
        processes.filter_map(|entry| std::fs::read(entry.unwrap().path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}
