//! The schema says what the reader accepts.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::keys::{FILE, Kind, Shape};
use super::super::schema;
use super::{Config, good, parse};

/// Every key with its example, one of each that exclude each other.
fn examples(shape: &Shape, path: &str, choice: usize, text: &mut String) {
    let wanted = |name: &str| {
        let excluding = shape.one_of.iter().position(|one| *one == name);
        let last = shape.one_of.len().saturating_sub(1);
        excluding.is_none_or(|at| at == choice.min(last))
    };
    let keys = || shape.keys.iter().filter(|key| wanted(key.name));
    for key in keys() {
        if !matches!(key.kind, Kind::Table(_) | Kind::Named(_) | Kind::List(_)) {
            writeln!(text, "{}", shape.line(key)).unwrap();
        }
    }
    for key in keys() {
        let (below, shape) = match key.kind {
            Kind::Table(shape) => (format!("{path}{}", key.name), shape),
            Kind::Named(shape) => (format!("{path}{}.one", key.name), shape),
            Kind::List(shape) => {
                writeln!(text, "[[{path}{}]]", key.name).unwrap();
                examples(shape, "", 0, text);
                continue;
            }
            _ => continue,
        };
        writeln!(text, "[{below}]").unwrap();
        examples(shape, &format!("{below}."), choice, text);
    }
}

#[test]
fn every_example_is_right() {
    for choice in [0, 1] {
        let mut text = String::new();
        examples(&FILE, "", choice, &mut text);
        let text = text
            .replace("${ALICE_KEY}", "${TOKEN}")
            .replace("${REDIS_PASSWORD}", "${TOKEN}")
            .replace("${BOWLINE_PEERS_SECRET}", &"${TOKEN}".repeat(2))
            .replace("${CLIENT_SECRET}", "${TOKEN}")
            .replace("kind = \"file\"", "kind = \"redis\"")
            // There is one server, with a name that no union can have.
            .replace(r#"["files", "web"]"#, r#"["one"]"#)
            .replace("[unions.one]", "[unions.two]")
            // The endpoints of the example are two hosts.
            .replace("several_origins = false", "several_origins = true");
        // A Redis has no path, and one password; a client that signs in has one id and no token.
        let excluded = [
            "path =",
            ["password =", "password_file ="][choice],
            ["client_metadata_url =", "client_"][choice],
            "headers =",
            // Only a command has these; what it has is shown below.
            "env =",
            "cwd =",
            // It would be read.
            "ca_file = \"/etc/bowline/mcp-ca.pem\"",
            "cert =",
            "key = \"/etc/bowline/tls.key\"",
            "[tls]",
            // It needs that.
            "certificate_sha256 =",
        ];
        let fits = |line: &&str| !excluded.iter().any(|key| line.starts_with(key));
        let config = good(&text.lines().filter(fits).collect::<Vec<_>>().join("\n"));
        assert_eq!((config.servers.len(), config.callers.len()), (1, 1));
    }
    let path = FILE.key("store").map(|store| &store.kind);
    let Some(Kind::Table(store)) = path else {
        panic!("the store is a table");
    };
    let path = store.line(store.key("path").unwrap());
    good(&format!("[store]\nkind = \"file\"\n{path}\n"));
    let Kind::Named(server) = FILE.key("servers").unwrap().kind else {
        panic!("servers have names");
    };
    let lines = ["command", "env", "cwd"].map(|key| server.line(server.key(key).unwrap()));
    good(&format!("[servers.one]\n{}\n", lines.join("\n")));
}

/// Collects `key = default` for every table that is not behind a name.
fn defaults(shape: &Shape, path: &str, text: &mut String) {
    for key in shape.keys {
        match (&key.kind, key.default) {
            (Kind::Table(shape), _) => defaults(shape, &format!("{path}{}.", key.name), text),
            (_, Some(default)) => writeln!(text, "{path}{} = {default}", key.name).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn every_default_is_the_default() {
    let mut text = String::new();
    defaults(&FILE, "", &mut text);
    assert!(text.lines().count() >= 8, "{text}");
    // A file needs a place, which this environment does not have; some keys need a Redis.
    let file = "store.kind = \"file\"\n";
    let redis = "store.kind = \"redis\"\nstore.url = \"redis://h\"\n";
    let path = "store.path = \"/s\"\n";
    assert_eq!(good(path), good(&format!("{file}{path}")));
    assert_eq!(good("store.kind = \"memory\""), Config::default());
    assert!(text.contains(file), "{text}");
    assert_eq!(good(&text.replace(file, redis)), good(redis));

    let Kind::Named(server) = FILE.key("servers").unwrap().kind else {
        panic!("servers have names");
    };
    let mut text = "[servers.a]\nurl = \"http://h\"\n".to_owned();
    defaults(server, "", &mut text);
    // That the table of one is there means something.
    let plain = good("[servers.a]\nurl = \"http://h\"\noauth = {}\n");
    assert_eq!(good(&text), plain);
}

/// Every key of the schema, as a path; `*` stands for a name, and `[]` for a place in a list.
fn paths(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        assert!(property["description"].is_string(), "{path}{name}");
        found.push(format!("{path}{name}"));
        paths(property, &format!("{path}{name}."), found);
        paths(&property["items"], &format!("{path}{name}[]."), found);
        paths(
            &property["additionalProperties"],
            &format!("{path}{name}.*."),
            found,
        );
    }
    if schema["properties"].is_object() {
        assert_eq!(schema["additionalProperties"], false, "{path}");
    }
}

#[test]
fn every_key_is_there() {
    let schema = schema();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    let mut found = Vec::new();
    paths(&schema, "", &mut found);
    found.sort();
    assert_eq!(
        found,
        [
            "admin",
            "callers",
            "callers.*.certificate_sha256",
            "callers.*.key",
            "callers.*.key_sha256",
            "callers.*.servers",
            "hosts",
            "limits",
            "limits.body_bytes",
            "limits.children",
            "limits.connections",
            "limits.connections_per_address",
            "limits.proxies",
            "limits.session_idle",
            "limits.session_max_age",
            "limits.sessions",
            "limits.streams",
            "listen",
            "oauth",
            "oauth.deadline",
            "oauth.flow",
            "oauth.hold",
            "oauth.host",
            "oauth.meta_prefix",
            "oauth.public_url",
            "oauth.redirect_uri",
            "origins",
            "peers",
            "peers.advertise",
            "peers.listen",
            "peers.secret",
            "peers.secret_file",
            "servers",
            "servers.*.ca_file",
            "servers.*.call_timeout",
            "servers.*.command",
            "servers.*.connect_timeout",
            "servers.*.cwd",
            "servers.*.drain_timeout",
            "servers.*.endpoints",
            "servers.*.env",
            "servers.*.forward_headers",
            "servers.*.headers",
            "servers.*.health",
            "servers.*.health.every",
            "servers.*.health.get",
            "servers.*.keep_alive",
            "servers.*.list_timeout",
            "servers.*.oauth",
            "servers.*.oauth.allow_private",
            "servers.*.oauth.client_id",
            "servers.*.oauth.client_metadata_url",
            "servers.*.oauth.client_secret",
            "servers.*.oauth.endpoints_elsewhere",
            "servers.*.oauth.flow",
            "servers.*.oauth.issuer",
            "servers.*.oauth.redirect_uri",
            "servers.*.oauth.scopes",
            "servers.*.oauth.several_origins",
            "servers.*.oauth.unlisted_pkce",
            "servers.*.on_session_loss",
            "servers.*.prefix",
            "servers.*.recovery_budget",
            "servers.*.replay",
            "servers.*.required",
            "servers.*.session_lost",
            "servers.*.session_lost[].code",
            "servers.*.session_lost[].status",
            "servers.*.session_lost[].text",
            "servers.*.tools",
            "servers.*.tools.allow",
            "servers.*.tools.deny",
            "servers.*.transport",
            "servers.*.url",
            "stop_timeout",
            "store",
            "store.ca_file",
            "store.cache",
            "store.grace",
            "store.kind",
            "store.on_unreachable_start",
            "store.password",
            "store.password_file",
            "store.path",
            "store.prefix",
            "store.seal_keys_file",
            "store.timeout",
            "store.url",
            "store.user",
            "tls",
            "tls.cert",
            "tls.key",
            "union",
            "union.names",
            "union.separator",
            "union.servers",
            "unions",
            "unions.*.names",
            "unions.*.separator",
            "unions.*.servers",
        ]
    );
    let server = &schema["properties"]["servers"]["additionalProperties"];
    assert_eq!(server["oneOf"][1]["required"][0], "endpoints");
    assert_eq!(schema["properties"]["listen"]["default"], "127.0.0.1:6270");
    let replay = &server["properties"]["replay"];
    assert_eq!(replay["default"], "safe");
    assert_eq!(replay["anyOf"][0]["anyOf"][0]["enum"][1], "never");
    assert_eq!(replay["anyOf"][1]["minItems"], 1);
    let oauth = &server["properties"]["oauth"]["properties"];
    assert_eq!(oauth["flow"]["anyOf"][0]["enum"][1], "client-driven");
    assert_eq!(oauth["allow_private"]["type"], "boolean");
    let lost = &server["properties"]["session_lost"]["items"];
    assert_eq!(lost["oneOf"][0]["required"][0], "status");
    let status = &lost["properties"]["status"];
    assert_eq!(
        (&status["minimum"], &status["maximum"]),
        (&200.into(), &599.into())
    );
}

/// The reader knows a key if and only if the schema has it.
#[test]
fn no_other_key_is_accepted() {
    let mut found = Vec::new();
    paths(&schema(), "", &mut found);
    for path in found {
        let key = path.replace('*', "a");
        let unknown = |key: &str| {
            // A date is of the wrong type for every key, so each is either that or unknown.
            let line = match key.split_once("[].") {
                Some((list, key)) => format!("[[{list}]]\n{key} = 1979-05-27"),
                None => format!("{key} = 1979-05-27"),
            };
            let errors = parse(&line).unwrap_err();
            errors.to_string().contains("unknown key")
        };
        assert!(!unknown(&key), "{key}");
        assert!(unknown(&format!("{key}x")), "{key}x");
    }
}

/// The reference has every key, and the guide's example has them all and is right.
#[test]
fn the_guide_is_complete() {
    let reference = include_str!("../../../../../docs/reference.md");
    let guide = include_str!("../../../../../docs/guides/configuration.md");
    let (_, example) = guide.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let variable = |name: &str| Some(format!("the-value-of-{name}"));
    // Certificates would be read.
    let unread = [
        "[tls]",
        "cert =",
        "key = \"/etc/",
        "[callers.carol]",
        "certificate_",
    ];
    let fits = |line: &&str| !unread.iter().any(|start| line.starts_with(start));
    let readable: Vec<_> = example.lines().filter(fits).collect();
    let config = Config::parse("bowline.toml", &readable.join("\n"), &variable).unwrap();
    assert_eq!((config.servers.len(), config.callers.len()), (3, 2));
    let mut found = Vec::new();
    paths(&schema(), "", &mut found);
    for path in found {
        let name = path.rsplit('.').next().unwrap();
        let (row, section) = (format!("| `{name}` |"), format!("`[{name}"));
        let explained = reference.contains(&row)
            || reference.contains(&section)
            || reference.contains(&format!("NAME.{name}]`"))
            || reference.contains(&format!("NAME.{name}]]`"));
        assert!(explained, "{path} is not in the reference");
        let used = [
            format!("{name} = "),
            format!("[{name}"),
            format!(".{name}]"),
        ];
        assert!(used.iter().any(|used| example.contains(used)), "{path}");
    }
}
