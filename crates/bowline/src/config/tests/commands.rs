//! Servers that are processes.

use super::{Config, Target, good, wrong};

fn command(text: &str) -> crate::config::Command {
    let config = good(&format!("[servers.a]\n{text}"));
    match &config.servers["a"].target {
        Target::Command(command) => command.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_has_arguments_an_environment_and_a_directory() {
    let written = command(
        "command = [\"npx\", \"-y\", \"-y\"]\nenv = { KEY = \"s3cret\" }\ncwd = \"/srv\"\ncall_timeout = \"5s\"",
    );
    assert_eq!((&*written.program, written.args.len()), ("npx", 2));
    assert_eq!(written.env["KEY"], "s3cret");
    assert_eq!(written.cwd.as_deref(), Some("/srv".as_ref()));
    assert_eq!(written.name(), "npx");
    let shown = format!("{written:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("-y"),
        "{shown}"
    );
}

#[test]
fn a_process_inherits_what_is_listed() {
    let text = "[servers.a]\ncommand = [\"${PATH}/x\"]";
    let environment = |name: &str| Some(format!("the {name}"));
    let config = Config::parse("bowline.toml", text, &environment).unwrap();
    let Target::Command(command) = &config.servers["a"].target else {
        panic!("not a command");
    };
    assert_eq!(command.program, "the PATH/x");
    assert_eq!(command.inherited["LC_CTYPE"], "the LC_CTYPE");
    assert!(!command.inherited.contains_key("BOWLINE_SEAL_KEYS"));
}

#[test]
fn what_is_configured_identifies_it() {
    let one = command("command = [\"x\", \"a\", \"b\"]");
    let mut same = one.clone();
    same.inherited
        .insert("PATH".to_owned(), "/elsewhere".to_owned());
    assert_eq!(one.identity(), same.identity());
    for other in [
        "command = [\"x\", \"ab\"]",
        "command = [\"x\", \"a\", \"b\"]\nenv = { A = \"b\" }",
        "command = [\"x\", \"a\", \"b\"]\ncwd = \"/\"",
    ] {
        assert_ne!(one.identity(), command(other).identity(), "{other}");
    }
}

#[test]
fn what_cannot_be_started_or_means_nothing_is_refused() {
    for (text, message) in [
        ("command = []", "`command` names no program"),
        ("command = [\"\"]", "`command` names no program"),
        (
            "command = [\"x\", \"a\\u0000\"]",
            "`command` has a NUL character in it",
        ),
        (
            "command = \"npx\"",
            "`command` must be an array of strings, not a string",
        ),
        (
            "command = [\"x\"]\ncwd = \"\"",
            "`cwd` is not a directory's path",
        ),
        (
            "command = [\"x\"]\nenv = { \"A=B\" = \"c\" }",
            "`A=B` is not the name of a variable",
        ),
        (
            "command = [\"x\"]\nenv = { A = 1 }",
            "the variable `A` must be a string, not an integer",
        ),
        (
            "command = [\"x\"]\nurl = \"http://h\"",
            "`servers.a` has both `url` and `command`",
        ),
        (
            "url = \"http://h\"\nenv = { A = \"b\" }",
            "`env` means nothing without a `command`",
        ),
        (
            "url = \"http://h\"\ncwd = \"/\"",
            "`cwd` means nothing without a `command`",
        ),
    ] {
        assert_eq!(wrong(&format!("[servers.a]\n{text}")).2, message, "{text}");
    }
    for key in [
        "headers = { A = \"b\" }",
        "forward_headers = [\"a\"]",
        "connect_timeout = \"1s\"",
        "health = { every = \"1s\" }",
        "keep_alive = \"1m\"",
        "oauth = {}",
        "session_lost = [{ status = 400 }]",
    ] {
        let name = key.split(' ').next().unwrap();
        let (.., message) = wrong(&format!("[servers.a]\ncommand = [\"x\"]\n{key}"));
        assert_eq!(
            message,
            format!("`{name}` means nothing for a server with a `command`")
        );
    }
}
