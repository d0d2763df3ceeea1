//! The rules for a server: its name, its URL and its headers.

use super::{NameProblem, Server, ServerName, UrlProblem, good, seconds, server, wrong};
use crate::config::Transport;

#[test]
fn server_names_need_no_escaping() {
    for (name, problem) in [
        ("", NameProblem::Empty),
        (".a", NameProblem::LeadingDot),
        ("..", NameProblem::LeadingDot),
        ("a/b", NameProblem::Character),
        ("a b", NameProblem::Character),
        ("é", NameProblem::Character),
        (&"a".repeat(65), NameProblem::Long),
    ] {
        assert_eq!(name.parse::<ServerName>(), Err(problem));
        let (line, column, message) = wrong(&format!("[servers.\"{name}\"]\nurl = \"http://h\""));
        assert_eq!((line, column, message.as_str()), (1, 10, problem.what()));
    }
    for name in ["a", "A-b_c.9", "-", &"a".repeat(64)] {
        let parsed: ServerName = name.parse().unwrap();
        assert_eq!((parsed.as_ref(), parsed.to_string().as_str()), (name, name));
    }
    let both = NameProblem::Long.to_string();
    assert_eq!(
        both,
        "the server's name is longer than 64 characters; shorten it to 64 characters or fewer"
    );
}

#[test]
fn a_server_has_a_url() {
    assert_eq!(
        wrong("[servers.a]"),
        (
            1,
            10,
            "`servers.a` has neither `url` nor `endpoints` nor `command`".to_owned()
        )
    );
}

#[test]
fn urls_are_absolute_http_without_secrets() {
    for (url, problem) in [
        ("", UrlProblem::NotAbsolute),
        ("mcp.example.com/mcp", UrlProblem::NotAbsolute),
        ("/mcp", UrlProblem::NotAbsolute),
        ("ws://h/", UrlProblem::Scheme),
        ("://h/", UrlProblem::Scheme),
        ("http://", UrlProblem::NoHost),
        ("http:///mcp", UrlProblem::NoHost),
        ("http://:80/", UrlProblem::NoHost),
        ("https://ada@h/", UrlProblem::Userinfo),
        ("https://ada:pw@h/#x", UrlProblem::Userinfo),
        ("https://h/mcp#x", UrlProblem::Fragment),
        ("https://h#", UrlProblem::Fragment),
        ("https://h:0/", UrlProblem::Port),
        ("https://h:70000/", UrlProblem::Port),
        ("https://h:+80/", UrlProblem::Port),
        ("https://[::1]:x/", UrlProblem::Port),
        ("https://h:/", UrlProblem::Port),
        ("https://a b/", UrlProblem::Malformed),
        ("https://h/a b", UrlProblem::Malformed),
        ("https://[::1/", UrlProblem::Port),
    ] {
        assert_eq!(Server::from_url(url).unwrap_err(), problem, "{url}");
        let (line, column, message) = wrong(&format!("[servers.a]\nurl = '{url}'"));
        assert_eq!((line, column, message.as_str()), (2, 7, problem.what()));
    }
    let both = UrlProblem::Userinfo.to_string();
    assert_eq!(
        both,
        "the URL has a user name or password in it; put credentials in `headers`, such as `Authorization`"
    );
}

#[test]
fn urls_are_kept_byte_for_byte() {
    for url in [
        "https://h/",
        "http://127.0.0.1:8000/a/../b//c/",
        "https://[::1]:9/%7e%7E/%2F?x=%20+&y=@:/?&&",
        "https://h.example./mcp;v=1?",
        "https://h/@scope/a:b@c",
    ] {
        let server = Server::from_url(url).unwrap();
        assert_eq!(server.target.urls()[0].to_string(), url);
        assert_eq!(
            good(&format!("[servers.a]\nurl = '{url}'")).servers["a"],
            server
        );
    }
    assert_eq!(
        Server::from_url("HTTPS://h").unwrap().target.urls()[0].path(),
        "/"
    );
}

#[test]
fn a_transport_is_one_of_three_and_for_urls() {
    for (written, transport) in [
        ("", Transport::Auto),
        ("transport = \"auto\"", Transport::Auto),
        ("transport = \"streamable-http\"", Transport::StreamableHttp),
        ("transport = \"sse\"", Transport::Sse),
    ] {
        let config = good(&format!("[servers.a]\nurl = \"http://h/\"\n{written}"));
        let server = config.servers.values().next().unwrap();
        assert_eq!(server.transport, transport, "{written}");
    }
    let text = "[servers.a]\nurl = \"http://h/\"\ntransport = \"http\"";
    let (line, column, message) = wrong(text);
    assert_eq!((line, column), (3, 13));
    assert!(message.contains("`streamable-http`"), "{message}");
    let text = "[servers.a]\ncommand = [\"x\"]\ntransport = \"sse\"";
    assert_eq!(
        wrong(text).2,
        "`transport` means nothing for a server with a `command`"
    );
}

#[test]
fn headers_that_bowline_sets_are_refused() {
    for name in [
        "Host",
        "Content-Length",
        "transfer-encoding",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Proxy-Authorization",
        "proxy-x",
        "Accept",
        "Content-Type",
        "Cookie",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Last-Event-ID",
    ] {
        let (line, column, message) = wrong(&server(&format!("headers = {{ {name} = \"x\" }}")));
        assert_eq!((line, column), (3, 13));
        assert!(
            message.starts_with(&format!("the header `{name}` is set by Bowline: ")),
            "{message}"
        );
    }
    let (.., message) = wrong(&server("headers.cookie = \"x\""));
    assert!(
        message.ends_with("cookies are kept per session"),
        "{message}"
    );
    let (.., message) = wrong(&server("headers.mcp-session-id = \"x\""));
    assert!(
        message.ends_with("the server's own id is used"),
        "{message}"
    );
    good(&server(
        "headers = { accept-language = \"en\", x-host = \"x\", proxy = \"x\" }",
    ));
}

#[test]
fn headers_are_valid_and_given_once() {
    assert_eq!(
        wrong(&server("headers = { \"a b\" = \"x\" }")).2,
        "`a b` is not the name of a header"
    );
    assert_eq!(
        wrong(&server("headers = { \"\" = \"x\" }")).2,
        "`` is not the name of a header"
    );
    let (.., message) = wrong(&server("headers = { X-A = \"x\\n\" }"));
    assert_eq!(
        message,
        "the value of the header `X-A` has a character that headers cannot have"
    );
    let twice = wrong(&server("headers = { x-a = \"1\", X-A = \"2\" }"));
    let message = "the header `X-A` is given twice; capital letters make no difference";
    assert_eq!(twice, (3, 24, message.to_owned()));
}

#[test]
fn idle_sessions_are_pinged_in_time_or_not_at_all() {
    let keep_alive = |line| good(&server(line)).servers["a"].keep_alive;
    assert_eq!(keep_alive(""), Some(seconds(240)));
    assert_eq!(keep_alive("keep_alive = \"1s\""), Some(seconds(1)));
    assert_eq!(keep_alive("keep_alive = \"off\""), None);
    for (value, message) in [
        ("999ms", "`keep_alive` must be at least 1s"),
        ("0s", "`keep_alive` must be more than zero"),
        ("never", "`keep_alive` is not a duration"),
    ] {
        let (.., told) = wrong(&server(&format!("keep_alive = \"{value}\"")));
        assert_eq!(told, message);
    }
}
