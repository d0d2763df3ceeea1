//! The rules of `[peers]`.

use super::{good, parse, wrong};
use crate::config::Password;

const SECRET: &str = "secret = \"0123456789abcdef0123456789abcdef\"";

fn on_redis(peers: &str) -> String {
    format!("[store]\nkind = \"redis\"\nurl = \"redis://h\"\n[peers]\n{peers}\n")
}

/// What is wrong with a `[peers]` that has these lines.
fn message(lines: &str) -> String {
    wrong(&on_redis(lines)).2
}

#[test]
fn gateways_reach_each_other_where_they_say() {
    let peers = good(&on_redis(&format!("listen = \"10.0.0.5:6272\"\n{SECRET}")));
    let peers = peers.peers.unwrap();
    let bound = "10.0.0.5:1234".parse().unwrap();
    assert_eq!(peers.address(bound).as_deref(), Some("10.0.0.5:1234"));
    assert!(matches!(peers.secret, Password::Written(_)));
    assert!(!format!("{peers:?}").contains("0123456789"));
    let wildcard =
        "listen = \"[::]:6272\"\nadvertise = \"gw-1.internal:6272\"\nsecret_file = \"/s\"";
    let peers = good(&on_redis(wildcard)).peers.unwrap();
    let bound = "[::]:6272".parse().unwrap();
    assert_eq!(peers.address(bound).as_deref(), Some("gw-1.internal:6272"));
    assert_eq!(peers.secret, Password::File("/s".into()));
}

#[test]
fn what_cannot_work_is_said() {
    let listen = "listen = \"10.0.0.5:6272\"";
    for (lines, part) in [
        (SECRET.to_owned(), "needs a `listen`"),
        (
            format!("listen = \"unix:/s\"\n{SECRET}"),
            "not an IP address",
        ),
        (format!("listen = \"0.0.0.0:1\"\n{SECRET}"), "every address"),
        (
            format!("{listen}\nadvertise = \"gw-1\"\n{SECRET}"),
            "not a host with a port",
        ),
        (
            format!("{listen}\nadvertise = \"http://h:1\"\n{SECRET}"),
            "not a host with a port",
        ),
        (
            format!("{listen}\nadvertise = \"u@h:1\"\n{SECRET}"),
            "not a host with a port",
        ),
        (
            format!("{listen}\nadvertise = \"h:0\"\n{SECRET}"),
            "not a host with a port",
        ),
        (format!("{listen}\nsecret = \"short\""), "fewer than 32"),
        (format!("{listen}\nsecret_file = \"\""), "is empty"),
    ] {
        assert!(
            message(&lines).contains(part),
            "{lines}: {}",
            message(&lines)
        );
    }
    assert!(parse(&on_redis(listen)).is_err());
    let alone = format!("store.kind = \"memory\"\n[peers]\n{listen}\n{SECRET}\n");
    assert!(wrong(&alone).2.contains("means nothing"));
}

#[test]
fn what_is_missing_without_them_is_said() {
    let redis = "[store]\nkind = \"redis\"\nurl = \"redis://h\"\n";
    let command = "[servers.a]\ncommand = [\"x\"]\n";
    let url = "[servers.a]\nurl = \"http://h\"\n";
    let peers = format!("[peers]\nlisten = \"10.0.0.5:6272\"\n{SECRET}\n");
    let sse = format!("{url}transport = \"sse\"\n");
    for lacking in [command, &sse] {
        assert!(good(&format!("{redis}{lacking}")).lacks_peers().is_some());
    }
    for fine in [
        format!("{redis}{url}"),
        format!("store.kind = \"memory\"\n{command}"),
        format!("{redis}{peers}{command}"),
    ] {
        assert_eq!(good(&fine).lacks_peers(), None, "{fine}");
    }
}
