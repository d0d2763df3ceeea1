//! The rules for a server's endpoints, its client headers, its timeouts and its health.

use std::time::Duration;

use super::{Server, Target, UrlProblem, good, parse, seconds, server, wrong};

fn urls(target: &Target) -> Vec<String> {
    target.urls().iter().map(ToString::to_string).collect()
}

#[test]
fn everything_of_a_server() {
    let config = good(
        r#"
        stop_timeout = "5s"
        [servers.a]
        endpoints = ["http://a/mcp", "http://b:8000/other?x=1"]
        forward_headers = ["X-Tenant", "accept-language"]
        call_timeout = "60s"
        [servers.a.health]
        every = "500ms"
        get = "/healthz?full=1"
        [servers.b]
        endpoints = ["http://a/mcp"]
        [servers.c]
        url = "http://a/mcp"
        "#,
    );
    assert_eq!(config.stop_timeout, seconds(5));
    let a = &config.servers["a"];
    assert!(matches!(a.target, Target::Endpoints(_)));
    assert_eq!(urls(&a.target), ["http://a/mcp", "http://b:8000/other?x=1"]);
    assert_eq!(a.forward_headers, ["x-tenant", "accept-language"]);
    assert_eq!(a.call_timeout, Some(seconds(60)));
    assert_eq!(a.health.every, Duration::from_millis(500));
    assert_eq!(a.health.get.as_ref().unwrap(), "/healthz?full=1");
    let b = &config.servers["b"];
    assert!(matches!(&b.target, Target::Endpoints(urls) if urls.len() == 1));
    assert_eq!(b.call_timeout, None);
    assert_eq!((b.health.every, &b.health.get), (seconds(5), &None));
    assert!(matches!(config.servers["c"].target, Target::Url(_)));
}

#[test]
fn exactly_one_of_url_and_endpoints() {
    let found = wrong(&server("endpoints = [\"http://a/\"]"));
    assert_eq!(
        found,
        (
            3,
            1,
            "`servers.a` has both `url` and `endpoints`".to_owned()
        )
    );
    let found = wrong("[servers.a]\nendpoints = []");
    assert_eq!(found, (2, 13, "`endpoints` is empty".to_owned()));
    let found = wrong("[servers.a]\nendpoints = [\"http://a/\", \"HTTP://A/\"]");
    assert_eq!(found, (2, 27, "the endpoint is given twice".to_owned()));
    for (written, message) in [
        (
            "\"http://a/\"",
            "`endpoints` must be an array of strings, not a string",
        ),
        ("[1]", "`endpoints` has an integer in it"),
        ("[\"ws://a/\"]", UrlProblem::Scheme.what()),
    ] {
        assert_eq!(
            wrong(&format!("[servers.a]\nendpoints = {written}")).2,
            message
        );
    }
}

#[test]
fn endpoints_from_the_command_line() {
    let one = Server::from_urls("http://a/mcp").unwrap();
    assert!(matches!(one.target, Target::Url(_)));
    let two = Server::from_urls("http://a/mcp, http://b/mcp").unwrap();
    assert_eq!(urls(&two.target), ["http://a/mcp", "http://b/mcp"]);
    for (text, problem) in [
        ("http://a/,http://a/", UrlProblem::Twice),
        ("http://a/?x=1,2", UrlProblem::PartNotAbsolute),
        ("http://a/,", UrlProblem::PartNotAbsolute),
        ("http://a/,ws://b/", UrlProblem::Scheme),
    ] {
        assert_eq!(Server::from_urls(text).unwrap_err(), problem, "{text}");
    }
}

#[test]
fn headers_that_stay_here() {
    for (name, reason) in [
        ("Authorization", "credentials"),
        ("Proxy-Authorization", "credentials"),
        ("Cookie", "credentials"),
        ("Host", "URL"),
        ("Connection", "connection"),
        ("keep-alive", "connection"),
        ("TE", "connection"),
        ("Trailer", "connection"),
        ("Transfer-Encoding", "body"),
        ("Upgrade", "connection"),
        ("proxy-anything", "connection"),
        ("Expect", "connection"),
        ("Mcp-Session-Id", "session"),
        ("mcp-param-x", "session"),
        ("Content-Type", "body"),
        ("Content-Encoding", "body"),
        ("Accept", "MCP"),
        ("Accept-Encoding", "responses"),
        ("Origin", "checked"),
        ("Last-Event-ID", "stream"),
        ("X-Forwarded-For", "forge"),
        ("Forwarded", "forge"),
    ] {
        let lines = format!("forward_headers = [\"x-ok\", \"{name}\"]");
        let (line, column, message) = wrong(&server(&lines));
        assert_eq!((line, column), (3, 28));
        let (start, end) = message.split_once(": ").unwrap();
        assert_eq!(start, "this header cannot be forwarded");
        assert!(end.contains(reason), "{name}: {message}");
    }
}

#[test]
fn client_headers_are_valid_and_in_one_place() {
    for (lines, message) in [
        (
            "forward_headers = [\"a b\"]",
            "this is not the name of a header",
        ),
        (
            "forward_headers = [\"x-a\", \"X-A\"]",
            "this header is given twice; capital letters make no difference",
        ),
        (
            "forward_headers = [\"X-A\"]\nheaders = { x-a = \"1\" }",
            "this header is also set in `headers`",
        ),
        (
            "forward_headers = \"x-a\"",
            "`forward_headers` must be an array of strings, not a string",
        ),
    ] {
        assert_eq!(wrong(&server(lines)).2, message);
    }
    assert_eq!(good(&server("forward_headers = []")), good(&server("")));
}

#[test]
fn timeouts_and_health() {
    for (lines, message) in [
        (
            "call_timeout = \"0s\"",
            "`call_timeout` must be more than zero",
        ),
        ("health.every = \"often\"", "`every` is not a duration"),
        ("health.get = \"healthz\"", "`get` is not a path"),
        ("health.get = \"http://h/healthz\"", "`get` is not a path"),
        ("health.get = \"/a b\"", "`get` is not a path"),
        ("health.get = \"/a#b\"", "`get` is not a path"),
        ("health.get = \"\"", "`get` is not a path"),
        (
            "health.url = \"/a\"",
            "unknown key `url` in `servers.a.health`",
        ),
        (
            "health = \"5s\"",
            "`servers.a.health` must be a table, not a string",
        ),
    ] {
        assert_eq!(wrong(&server(lines)).2, message);
    }
    assert_eq!(
        wrong("stop_timeout = \"1\"").2,
        "`stop_timeout` is not a duration"
    );
    let errors = parse(&server("health = 5")).unwrap_err().to_string();
    let help = r#"write it like `health = { every = "5s", get = "/healthz" }`"#;
    assert!(errors.contains(help), "{errors}");
}
