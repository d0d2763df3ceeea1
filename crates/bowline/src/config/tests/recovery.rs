//! The rules for what happens when a server loses a session.

use super::{Fingerprint, OnLoss, Recovery, Replay, good, parse, seconds, server, wrong};

fn recovery(lines: &str) -> Recovery {
    good(&server(lines)).servers["a"].recovery.clone()
}

/// A server with one fingerprint of these lines; the first is line 4.
fn lost(lines: &str) -> String {
    server(&format!("[[servers.a.session_lost]]\n{lines}"))
}

#[test]
fn everything_of_recovery() {
    let found = recovery(
        r#"
        recovery_budget = "1s"
        on_session_loss = "tell"
        replay = ["search", "read file"]
        drain_timeout = "1h"
        [[servers.a.session_lost]]
        status = 400
        [[servers.a.session_lost]]
        status = 200
        code = -32000
        text = "no ${HOST}"
        "#,
    );
    let fingerprint = |status, code, text: Option<&str>| Fingerprint {
        status,
        code,
        text: text.map(str::to_owned),
    };
    assert_eq!(
        found,
        Recovery {
            budget: seconds(1),
            on_loss: OnLoss::Tell,
            replay: Replay::Tools(vec!["search".to_owned(), "read file".to_owned()]),
            drain_timeout: seconds(3600),
            fingerprints: vec![
                fingerprint(http::StatusCode::BAD_REQUEST, None, None),
                fingerprint(
                    http::StatusCode::OK,
                    Some(-32000),
                    Some("no mcp.example.com")
                ),
            ],
        }
    );
}

#[test]
fn nothing_said_means_the_defaults() {
    let default = Recovery::default();
    assert_eq!(recovery(""), default);
    assert_eq!(recovery("session_lost = []"), default);
    assert_eq!(
        (default.budget, default.drain_timeout),
        (seconds(30), seconds(600))
    );
    assert_eq!(
        (default.on_loss, default.replay),
        (OnLoss::Recover, Replay::Safe)
    );
    assert_eq!(
        recovery("on_session_loss = \"recover\"").on_loss,
        OnLoss::Recover
    );
    assert_eq!(recovery("replay = \"safe\"").replay, Replay::Safe);
    assert_eq!(recovery("replay = \"never\"").replay, Replay::Never);
}

#[test]
fn durations() {
    let least = "`recovery_budget` must be at least 1s";
    for (lines, message) in [
        ("recovery_budget = \"999ms\"", least),
        (
            "recovery_budget = \"0s\"",
            "`recovery_budget` must be more than zero",
        ),
        (
            "recovery_budget = \"2y\"",
            "`recovery_budget` is longer than a year",
        ),
        (
            "recovery_budget = 30",
            "`recovery_budget` must be a string, not an integer",
        ),
        (
            "drain_timeout = \"0s\"",
            "`drain_timeout` must be more than zero",
        ),
        (
            "drain_timeout = \"later\"",
            "`drain_timeout` is not a duration",
        ),
    ] {
        assert_eq!(wrong(&server(lines)).2, message);
    }
}

#[test]
fn words_and_lists_of_tools() {
    let other_word = "`on_session_loss` is neither `recover` nor `tell`";
    let neither = "`replay` is neither `safe` nor `never`, nor a list of tools";
    for (lines, column, message) in [
        ("on_session_loss = \"Tell\"", 19, other_word),
        ("on_session_loss = \"\"", 19, other_word),
        (
            "on_session_loss = false",
            1,
            "`on_session_loss` must be a string, not a boolean",
        ),
        ("replay = \"search\"", 10, neither),
        ("replay = \"\"", 10, neither),
        ("replay = []", 10, "`replay` is an empty list"),
        ("replay = [\"a\", \"\"]", 16, "the name of a tool is empty"),
        (
            "replay = [\"a\", \"b\", \"a\"]",
            21,
            "the tool is given twice",
        ),
        ("replay = [\"a\", 1]", 1, "`replay` has an integer in it"),
        (
            "replay = true",
            1,
            "`replay` must be a string or an array of strings, not a boolean",
        ),
        (
            "replay = \"${NONE}\"",
            11,
            "the variable `NONE`, used in `servers.a.replay`, is not set",
        ),
        (
            "replay = [\"${NONE}\"]",
            12,
            "the variable `NONE`, used in `servers.a.replay`, is not set",
        ),
    ] {
        assert_eq!(wrong(&server(lines)), (3, column, message.to_owned()));
    }
    // Names of tools are what the server lists, capital letters included.
    let both = Replay::Tools(vec!["a".to_owned(), "A".to_owned()]);
    assert_eq!(recovery("replay = [\"a\", \"A\"]").replay, both);
}

#[test]
fn statuses_are_those_of_answers() {
    for bad in [
        "0",
        "-400",
        "199",
        "600",
        "65936",
        "99999999999999999999999",
    ] {
        let found = wrong(&lost(&format!("status = {bad}\ncode = 1")));
        assert_eq!(
            found,
            (4, 10, "`status` must be from 200 to 599".to_owned())
        );
    }
    for good_one in [300, 400, 403, 409, 410, 499] {
        let found = recovery(&format!("session_lost = [{{ status = {good_one} }}]"));
        assert_eq!(found.fingerprints[0].status.as_u16(), good_one);
    }
    let found = wrong(&lost("status = 404\ntext = \"gone\""));
    let message = "404 needs no fingerprint: by the protocol it always means a lost session";
    assert_eq!(found, (4, 10, message.to_owned()));
    let found = wrong(&lost("code = 1"));
    let message = "`servers.a.session_lost` has no `status`";
    assert_eq!(found, (3, 1, message.to_owned()));
}

#[test]
fn usual_statuses_need_a_code_or_a_text() {
    for status in [200, 202, 401, 500, 502, 503, 599] {
        let found = wrong(&lost(&format!("status = {status}")));
        let message =
            "this status alone is not enough: every such response would mean a lost session";
        assert_eq!(found, (4, 10, message.to_owned()));
        good(&lost(&format!("status = {status}\ncode = -32001")));
        good(&lost(&format!("status = {status}\ntext = \"gone\"")));
        // One that is there and broken is reported once.
        wrong(&lost(&format!("status = {status}\ntext = \"${{NONE}}\"")));
        wrong(&lost(&format!("status = {status}\ncode = \"1\"")));
    }
}

#[test]
fn codes_and_texts() {
    for (lines, message) in [
        (
            "status = 400\ntext = \"\"",
            "`text` is empty, so every response contains it",
        ),
        (
            "status = 200\ntext = \"\"",
            "`text` is empty, so every response contains it",
        ),
        (
            "status = 400\ntext = 1",
            "`text` must be a string, not an integer",
        ),
        (
            "status = 400\ncode = 1.5",
            "`code` must be an integer, not a float",
        ),
        (
            "status = 400\ncode = 9223372036854775808",
            "`code` is not an error code: it does not fit in 64 bits",
        ),
        (
            "status = 400\nbody = \"gone\"",
            "unknown key `body` in `servers.a.session_lost`",
        ),
        (
            "status = \"400\"",
            "`status` must be an integer, not a string",
        ),
    ] {
        assert_eq!(wrong(&lost(lines)).2, message);
    }
    let extreme = recovery("session_lost = [{ status = 400, code = -9223372036854775808 }]");
    assert_eq!(extreme.fingerprints[0].code, Some(i64::MIN));
}

#[test]
fn fingerprints_are_tables_in_a_list() {
    for (lines, message) in [
        (
            "[servers.a.session_lost]\nstatus = 400",
            "`servers.a.session_lost` must be an array of tables, not a table",
        ),
        (
            "session_lost = 400",
            "`servers.a.session_lost` must be an array of tables, not an integer",
        ),
        (
            "session_lost = [{ status = 400 }, 400]",
            "`servers.a.session_lost` has an integer in it",
        ),
    ] {
        let errors = parse(&server(lines)).unwrap_err();
        let found: Vec<_> = errors
            .iter()
            .map(|one| (one.message(), one.help()))
            .collect();
        assert_eq!(
            found,
            [(message, "write `[[servers.a.session_lost]]` above each")]
        );
    }
    wrong(&server("session_lost = \"${NONE}\""));
    wrong(&server("session_lost = [\"${NONE}\"]"));
}

#[test]
fn all_problems_at_once() {
    let text = server(
        r#"recovery_budget = "soon"
on_session_loss = "ignore"
replay = ["a", "a"]
session_lost = [{ status = 404 }, { status = 503 }, { status = 99, text = "" }, { code = 1 }]
drain_timeout = 10"#,
    );
    let errors = parse(&text).unwrap_err();
    let places: Vec<_> = errors
        .iter()
        .map(|one| (one.line(), one.column()))
        .collect();
    assert_eq!(
        places,
        [
            (3, 19),
            (4, 19),
            (5, 16),
            (6, 28),
            (6, 46),
            (6, 64),
            (6, 75),
            (6, 81),
            (7, 1)
        ]
    );
    // None of these values is a secret.
    assert!(!errors.to_string().contains("**"), "{errors}");
}
