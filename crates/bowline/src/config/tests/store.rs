//! The rules of `[store]`.

use std::path::Path;

use super::{good, parse, seconds, wrong};
use crate::config::{Config, OnUnreachable, Password, RedisStore, Store, StoreKind};

fn redis(lines: &str) -> RedisStore {
    let text = format!("[store]\nkind = \"redis\"\nurl = \"redis://h\"\n{lines}\n");
    match good(&text).store.kind {
        StoreKind::Redis(redis) => redis,
        other => panic!("{other:?}"),
    }
}

/// The store of this text, if there is one, where these variables are set.
fn with(variables: &[(&str, &str)], text: &str) -> Option<Store> {
    let environment = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Some(Config::parse("x", text, &environment).ok()?.store)
}

/// What is wrong with a `[store]` that has these lines.
fn message(lines: &str) -> String {
    wrong(&format!("[store]\n{lines}\n")).2
}

#[test]
fn there_are_three_kinds() {
    assert_eq!(
        message("kind = \"disk\"\npath = \"x\""),
        "unknown kind of store"
    );
    assert_eq!(
        good("store.kind = \"memory\"").store.kind,
        StoreKind::Memory
    );
    let path = good("[store]\nkind = \"file\"\npath = \"/var/${HOST}\"")
        .store
        .kind;
    assert!(matches!(path, StoreKind::File { path } if path == Path::new("/var/mcp.example.com")));
    let plain = redis("");
    assert_eq!(plain.prefix, "bowline");
    assert_eq!(plain.on_unreachable_start, OnUnreachable::Wait);
    assert_eq!(
        (plain.user, plain.password, plain.ca_file),
        (None, None, None)
    );
}

#[test]
fn a_full_redis() {
    let config = good(
        r#"
        [store]
        kind = "redis"
        url = "rediss://[::1]:6380/3"
        user = "ada"
        password = "${TOKEN}"
        ca_file = "/ca.pem"
        prefix = "a:b"
        timeout = "500ms"
        cache = 5
        grace = "2m"
        on_unreachable_start = "exit"
        seal_keys_file = "/keys"
        "#,
    );
    let store = &config.store;
    assert_eq!(store.timeout.as_millis(), 500);
    assert_eq!((store.cache, store.grace), (5, seconds(120)));
    assert_eq!(store.seal_keys_file.as_deref(), Some(Path::new("/keys")));
    assert_eq!(store.seal_keys, None);
    let StoreKind::Redis(redis) = &store.kind else {
        panic!("{store:?}");
    };
    assert_eq!(redis.url.to_string(), "rediss://[::1]:6380/3");
    assert_eq!(redis.user.as_deref(), Some("ada"));
    let password = Password::Written("s3cret-of-16-chars".to_owned());
    assert_eq!(redis.password, Some(password));
    assert_eq!(redis.prefix, "a:b");
    assert_eq!(redis.on_unreachable_start, OnUnreachable::Exit);
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn a_file_without_a_path_is_in_the_state_directory() {
    let path = |variables: &'static [(&str, &str)]| {
        let written = with(variables, "store.kind = \"file\"")?;
        assert_eq!(with(variables, ""), Some(written.clone()), "the default");
        match written.kind {
            StoreKind::File { path } => path.to_str().map(ToOwned::to_owned),
            _ => None,
        }
    };
    let state = path(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]);
    assert_eq!(state.as_deref(), Some("/s/bowline"));
    let home = path(&[("XDG_STATE_HOME", ""), ("HOME", "/h")]);
    assert_eq!(home.as_deref(), Some("/h/.local/state/bowline"));
    assert_eq!(path(&[("HOME", "here")]), None);
    assert!(message("kind = \"file\"").starts_with("there is no directory for the sessions"));
}

#[test]
fn without_a_state_directory_only_what_is_not_said_is_in_memory() {
    let nowhere = with(&[], "").unwrap();
    assert_eq!(nowhere.kind, StoreKind::Memory);
    assert!(nowhere.lacks_state_directory);
    let meant = with(&[], "store.kind = \"memory\"").unwrap();
    assert!(!meant.lacks_state_directory);
    let placed = with(&[], "store.path = \"/s\"").unwrap();
    assert_eq!(placed.kind, StoreKind::File { path: "/s".into() });
    assert!(!placed.lacks_state_directory);
    // Whoever says how it is to be done wants it done.
    let (line, _, said) = wrong("[store]\ngrace = \"1s\"\ncache = 1\n");
    assert_eq!(line, 2);
    assert!(said.starts_with("there is no directory for the sessions"));
}

#[test]
fn a_key_belongs_to_its_kind() {
    for (key, kinds) in [
        ("path = \"x\"", "file"),
        ("url = \"redis://h\"", "redis"),
        ("user = \"x\"", "redis"),
        ("password = \"x\"", "redis"),
        ("password_file = \"x\"", "redis"),
        ("ca_file = \"x\"", "redis"),
        ("prefix = \"x\"", "redis"),
        ("on_unreachable_start = \"wait\"", "redis"),
        ("timeout = \"1s\"", "redis file"),
        ("cache = 1", "redis file"),
        ("grace = \"1s\"", "redis file"),
        ("seal_keys_file = \"x\"", "redis file"),
    ] {
        for kind in ["memory", "file"] {
            let text = format!("[store]\nkind = \"{kind}\"\n{key}\n");
            let nothing = "means nothing with a store of kind";
            let refused = parse(&text).is_err_and(|errors| errors.to_string().contains(nothing));
            assert_eq!(refused, !kinds.contains(kind), "{text}");
        }
    }
    assert_eq!(
        message("url = \"redis://h\""),
        "`url` means nothing with a store of kind `file`"
    );
}

#[test]
fn a_redis_is_somewhere() {
    assert_eq!(
        message("kind = \"redis\""),
        "a store of kind `redis` needs a `url`"
    );
    for (url, message) in [
        ("h:6379", "the URL has no scheme"),
        ("http://h", "the URL's scheme is neither redis nor rediss"),
        ("redis://", "the URL has no host"),
        (
            "redis://ada:pw@h",
            "the URL has a user name or password in it",
        ),
        (
            "redis://h:0",
            "the URL's port is not a number from 1 to 65535",
        ),
        (
            "redis://h/x",
            "the URL has more than a host, a port and the number of a database",
        ),
        (
            "redis://h?a=b",
            "the URL has more than a host, a port and the number of a database",
        ),
    ] {
        assert_eq!(
            self::message(&format!("kind = \"redis\"\nurl = \"{url}\"")),
            message
        );
    }
}

#[test]
fn what_goes_together() {
    let wrong = |lines: &str| message(&format!("kind = \"redis\"\nurl = \"redis://h\"\n{lines}"));
    assert_eq!(wrong("user = \"a\""), "there is a `user` and no password");
    assert_eq!(
        wrong("password = \"a\"\npassword_file = \"b\""),
        "there are both `password` and `password_file`"
    );
    assert_eq!(
        wrong("ca_file = \"a\""),
        "`ca_file` means nothing without TLS"
    );
    assert_eq!(wrong("password = \"${EMPTY}\""), "`password` is empty");
    assert_eq!(
        wrong("on_unreachable_start = \"stay\""),
        "`on_unreachable_start` is neither `wait` nor `exit`"
    );
    for bad in ["", "a b", "{a}", &"x".repeat(65)] {
        assert!(wrong(&format!("prefix = \"{bad}\"")).starts_with("`prefix` must have"));
    }
    let file = redis("password_file = \"/p\"").password;
    assert_eq!(file, Some(Password::File("/p".into())));
}
