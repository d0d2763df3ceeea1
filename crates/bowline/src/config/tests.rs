//! The rules of the configuration, one by one; those of a server are in [`servers`].

mod callers;
mod commands;
mod editor;
mod endpoints;
mod oauth;
mod peers;
mod recovery;
mod rendered;
mod robust;
mod schema;
mod secrets;
mod servers;
mod store;
mod unions;
mod variables;

use std::fs;

use super::*;

/// The environment of every test.
fn variable(name: &str) -> Option<String> {
    let value = match name {
        "HOST" => "mcp.example.com",
        "TOKEN" => "s3cret-of-16-chars",
        "QUOTE" => "\"\n[limits]",
        "EMPTY" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse("bowline.toml", text, &variable)
}

/// Parses what should be right.
fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Parses what should be wrong in exactly one way, and gives its line, column and message.
fn wrong(text: &str) -> (usize, usize, String) {
    let errors = parse(text).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors}");
    let problem = errors.iter().next().unwrap();
    assert!(!problem.help().is_empty());
    (
        problem.line(),
        problem.column(),
        problem.message().to_owned(),
    )
}

/// A file with one server whose table has these lines after its `url`.
fn server(lines: &str) -> String {
    format!("[servers.a]\nurl = \"http://h/\"\n{lines}\n")
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn an_empty_file_means_the_defaults() {
    let mut config = good("");
    // That of the store needs a home, which there is not here.
    assert!(std::mem::take(&mut config.store.lacks_state_directory));
    assert_eq!(config, Config::default());
    assert_eq!(config.listen.to_string(), "127.0.0.1:6270");
    assert_eq!(config.admin.unwrap().to_string(), "127.0.0.1:6271");
    assert_eq!(config.store.kind, StoreKind::Memory);
    assert_eq!(config.limits.sessions, 100_000);
    assert_eq!(config.limits.streams, 20_000);
    assert_eq!(config.limits.connections, 40_000);
    assert_eq!(config.limits.connections_per_address, 500);
    assert_eq!(config.limits.proxies, []);
    assert_eq!(config.limits.body_bytes, 8 << 20);
    assert_eq!(config.limits.session_idle, seconds(1800));
    assert_eq!(config.limits.session_max_age, None);
    assert!(config.servers.is_empty());
    assert_eq!(good("[store]\n[limits]\n[servers]\n"), good(""));
}

#[test]
fn a_full_file() {
    let config = good(
        r#"
        listen = "[::1]:80"
        admin = "off"
        [store]
        kind = "memory"
        [limits]
        sessions = 10
        streams = 0x14
        connections = 30
        connections_per_address = 3
        proxies = ["10.0.0.0/8", "::1"]
        body_bytes = 1_024
        session_idle = "1h 30m"
        session_max_age = "24h"
        [servers.files]
        url = "https://mcp.example.com/mcp"
        headers = { Authorization = "Bearer x", X-Team = "a\tb" }
        connect_timeout = "500ms"
        [servers.plain-2]
        url = "http://127.0.0.1:8000"
        [servers."v1.0".headers]
        x-key = ""
        [servers."v1.0"]
        url = "http://h"
        "#,
    );
    assert_eq!(config.listen.to_string(), "[::1]:80");
    assert_eq!(config.admin, None);
    let limits = config.limits;
    assert_eq!((limits.sessions, limits.streams), (10, 20));
    assert_eq!(limits.connections, 30);
    assert_eq!(limits.connections_per_address, 3);
    assert!(limits.proxies[0].contains([10, 1, 2, 3].into()));
    assert_eq!(limits.proxies[1].to_string(), "::1");
    assert_eq!(limits.body_bytes, 1024);
    assert_eq!(limits.session_idle, seconds(5400));
    assert_eq!(limits.session_max_age, Some(seconds(86400)));
    let names: Vec<_> = config.servers.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["files", "plain-2", "v1.0"]);
    let files = &config.servers["files"];
    assert_eq!(
        files.target.urls()[0].to_string(),
        "https://mcp.example.com/mcp"
    );
    assert_eq!(files.headers["authorization"], "Bearer x");
    assert_eq!(files.headers["x-team"], "a\tb");
    assert_eq!(files.connect_timeout, Duration::from_millis(500));
    assert_eq!(config.servers["plain-2"].connect_timeout, seconds(10));
    assert_eq!(config.servers["v1.0"].headers["x-key"], "");
}

#[test]
fn addresses_have_an_ip_and_a_port() {
    for bad in [
        "localhost:6270",
        "127.0.0.1",
        ":80",
        "1.2.3.4:70000",
        "off",
        "",
    ] {
        let (line, column, message) = wrong(&format!("\n listen = \"{bad}\""));
        assert_eq!((line, column), (2, 11));
        assert_eq!(
            message,
            "`listen` is not an IP address with a port, nor a Unix socket"
        );
    }
    let (.., message) = wrong("admin = \"on\"");
    assert_eq!(
        message,
        "`admin` is not an IP address with a port, nor a Unix socket"
    );
}

#[test]
fn listen_and_admin_differ() {
    let same = "`listen` and `admin` are the same address";
    assert_eq!(wrong("listen = \"127.0.0.1:6271\"").2, same);
    let both = "admin = \"[::1]:9\"\nlisten = \"[::1]:9\"";
    assert_eq!(wrong(both).0, 1);
    assert_eq!(wrong("admin = \"127.0.0.1:6270\"").1, 9);
    good("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"");
    good("listen = \"127.0.0.1:6271\"\nadmin = \"off\"");
}

#[test]
fn hosts_are_names_and_origins_are_as_browsers_write_them() {
    let config = good(
        r#"
        hosts = ["GW.internal", "my_pod-1"]
        origins = ["https://App.example:443/", "http://10.0.0.1:8080", "vscode-webview://abc"]
        "#,
    );
    assert_eq!(config.hosts, ["gw.internal", "my_pod-1"]);
    assert_eq!(
        config.origins,
        [
            "https://app.example",
            "http://10.0.0.1:8080",
            "vscode-webview://abc"
        ]
    );
    for bad in [
        "",
        "gw:6270",
        "https://gw",
        "gw/x",
        "*",
        "a b",
        "u@gw",
        "[::1]",
    ] {
        assert_eq!(
            wrong(&format!("hosts = [\"{bad}\"]")).2,
            "`hosts` has something in it that is not the name of a host"
        );
    }
    for bad in [
        "",
        "*",
        "null",
        "app.example",
        "https://",
        "https://a/b",
        "https://u@a",
        "://a",
        "https://a?b",
    ] {
        assert_eq!(
            wrong(&format!("origins = [\"{bad}\"]")).2,
            "`origins` has something in it that is not an origin"
        );
    }
}

#[test]
fn limits_are_in_range() {
    for key in [
        "sessions",
        "streams",
        "connections",
        "connections_per_address",
    ] {
        for bad in ["0", "-1", "-99999999999999999999999999999999999999999999"] {
            let (.., message) = wrong(&format!("[limits]\n{key} = {bad}"));
            assert_eq!(message, format!("`{key}` must be at least 1"));
        }
        good(&format!("[limits]\n{key} = 1"));
    }
    assert_eq!(
        wrong("limits.proxies = [\"10.0.0.0/33\"]").2,
        "`proxies` has something in it that is not an IP address, nor a network such as `10.0.0.0/8`"
    );
    assert_eq!(
        wrong("limits.body_bytes = 1023").2,
        "`body_bytes` must be at least 1024"
    );
    for bad in [
        "18446744073709551616",
        "99999999999999999999999999999999999999999999",
    ] {
        let (.., message) = wrong(&format!("limits.sessions = {bad}"));
        assert_eq!(message, "`sessions` is too large: it must fit in 64 bits");
    }
}

#[test]
fn durations_have_a_unit_and_a_sensible_length() {
    for (bad, message) in [
        ("soon", "`session_idle` is not a duration"),
        ("30", "`session_idle` is not a duration"),
        ("-1s", "`session_idle` is not a duration"),
        ("", "`session_idle` is not a duration"),
        ("0s", "`session_idle` must be more than zero"),
        ("2y", "`session_idle` is longer than a year"),
        (
            "99999999999999999999999y",
            "`session_idle` is not a duration",
        ),
    ] {
        assert_eq!(
            wrong(&format!("limits.session_idle = \"{bad}\"")).2,
            message
        );
    }
    assert_eq!(
        good("limits.session_idle = \"1y\"").limits.session_idle,
        seconds(31_557_600)
    );
    let (.., message) = wrong(&server("connect_timeout = \"0ms\""));
    assert_eq!(message, "`connect_timeout` must be more than zero");
}

#[test]
fn types_are_as_asked_for() {
    for (text, message) in [
        ("listen = 6270", "`listen` must be a string, not an integer"),
        ("admin = false", "`admin` must be a string, not a boolean"),
        (
            "store = \"memory\"",
            "`store` must be a table, not a string",
        ),
        ("limits = [1]", "`limits` must be a table, not an array"),
        (
            "limits.streams = 1.5",
            "`streams` must be an integer, not a float",
        ),
        (
            "limits.sessions = \"9\"",
            "`sessions` must be an integer, not a string",
        ),
        (
            "limits.session_idle = 10:00:00",
            "`session_idle` must be a string, not a date",
        ),
        (
            "[[servers]]\nurl = \"http://h\"",
            "`servers` must be a table, not an array",
        ),
        (
            "servers.a = \"http://h\"",
            "`servers.a` must be a table, not a string",
        ),
        ("servers.a.url = {}", "`url` must be a string, not a table"),
    ] {
        assert_eq!(wrong(text).2, message);
    }
    let (.., message) = wrong(&server("headers = \"x\""));
    assert_eq!(message, "`servers.a.headers` must be a table, not a string");
    let (.., message) = wrong(&server("headers = { X-A = 1 }"));
    assert_eq!(message, "the header `X-A` must be a string, not an integer");
}

#[test]
fn unknown_keys_get_a_suggestion_or_the_list() {
    for (text, help) in [
        ("Listen = 1", "did you mean `listen`?"),
        ("server.a = 1", "did you mean `servers`?"),
        ("limits.body-bytes = 1", "did you mean `body_bytes`?"),
        ("limits.sesions = 1", "did you mean `sessions`?"),
        (
            "limits.x = 1",
            "the keys allowed here are `sessions`, `streams`, `connections`, `children`, \
             `connections_per_address`, `proxies`, `body_bytes`, `session_idle`, \
             `session_max_age`",
        ),
        (
            "store.x = 1",
            "the keys allowed here are `kind`, `path`, `url`, `user`, `password`, `password_file`, \
             `ca_file`, `prefix`, `timeout`, `cache`, `grace`, `on_unreachable_start`, \
             `seal_keys_file`",
        ),
        (
            "servers.a = { url = \"http://h\", x = 1 }",
            "the keys allowed here are `url`, `endpoints`, `transport`, `command`, `env`, `cwd`, `headers`, \
             `forward_headers`, `ca_file`, `connect_timeout`, `call_timeout`, `health`, `keep_alive`, `recovery_budget`, \
             `on_session_loss`, `replay`, `drain_timeout`, `session_lost`, `oauth`, `prefix`, `required`, `list_timeout`, `tools`",
        ),
    ] {
        let errors = parse(text).unwrap_err();
        let helps: Vec<_> = errors.iter().map(Problem::help).collect();
        assert_eq!(helps, [help]);
    }
    assert_eq!(wrong("a = 1").2, "unknown key `a`");
    assert_eq!(wrong("limits.a = 1").2, "unknown key `a` in `limits`");
    assert_eq!(wrong("\"a\\u001b\" = 1").2, "unknown key `a\\u{1b}`");
}

#[test]
fn a_file_is_loaded_or_the_reason_given() {
    let path = std::env::temp_dir().join(format!("bowline-config-{}.toml", std::process::id()));
    let missing = Config::load(&path, &variable).unwrap_err();
    assert!(matches!(&missing, LoadError::Read { path: asked, .. } if *asked == path));
    assert!(
        missing
            .to_string()
            .starts_with("cannot read the configuration file ")
    );
    fs::write(&path, "limits.sessions = 5").unwrap();
    assert_eq!(Config::load(&path, &variable).unwrap().limits.sessions, 5);
    fs::write(&path, "x = 5").unwrap();
    let invalid = Config::load(&path, &variable).unwrap_err();
    fs::remove_file(&path).unwrap();
    assert!(matches!(&invalid, LoadError::Invalid(errors) if errors.len() == 1));
    assert!(
        invalid
            .to_string()
            .contains(&format!("{}:1:1", path.display()))
    );
}
