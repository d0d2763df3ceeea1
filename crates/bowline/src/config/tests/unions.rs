//! The rules for unions, for servers in them, and for lists of servers and tools.

use super::{Config, Flags, Server, UnionNames, UnionProblem, good, parse, seconds, server, wrong};

/// A file with these servers, and these lines after them.
fn servers(names: &[&str], lines: &str) -> String {
    let table = |name: &&str| format!("[servers.\"{name}\"]\nurl = \"http://h/\"\n");
    let tables: String = names.iter().map(table).collect();
    format!("{tables}{lines}\n")
}

fn help(text: &str) -> String {
    let errors = parse(text).unwrap_err();
    errors.iter().next().unwrap().help().to_owned()
}

fn names(names: &[super::ServerName]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}

#[test]
fn without_a_word_every_server_is_in_the_union() {
    let config = good(&servers(&["b", "a"], ""));
    let union = config.whole_union();
    assert_eq!(names(&union.servers), ["b", "a"]);
    assert_eq!(union.names, UnionNames::Prefixed);
    assert_eq!(union.separator, "__");
    assert!(config.unions.is_empty());
    let (name, one) = config.servers.first_key_value().unwrap();
    assert_eq!(one.prefix(name), "a");
    assert!(!one.required && one.tools.is_none());
    assert_eq!(one.list_timeout, seconds(10));
}

#[test]
fn what_is_written_counts() {
    let config = good(&servers(
        &["a", "b", "c"],
        r#"
        prefix = "see"
        required = true
        list_timeout = "3s"
        tools = { allow = ["get_*"], deny = ["get_secret"] }
        [union]
        servers = ["c", "a"]
        names = "bare"
        separator = "."
        [unions.team]
        servers = ["b"]
        [callers.alice]
        key = "0123456789abcdef"
        servers = ["b", "c"]
        "#,
    ));
    let union = config.whole_union();
    assert_eq!(names(&union.servers), ["c", "a"]);
    assert_eq!(
        (union.names, union.separator.as_str()),
        (UnionNames::Bare, ".")
    );
    assert_eq!(names(&config.unions["team"].servers), ["b"]);
    assert_eq!(config.unions["team"].separator, "__");
    let (name, c) = config.servers.last_key_value().unwrap();
    assert_eq!(
        (c.prefix(name), c.required, c.list_timeout),
        ("see", true, seconds(3))
    );
    let tools = c.tools.as_ref().unwrap();
    assert!(tools.allows("get_user") && !tools.allows("get_secret") && !tools.allows("put"));
    let servers = config.callers["alice"].servers.as_ref().unwrap();
    assert_eq!(names(servers), ["b", "c"]);
    assert_eq!(
        good(&server("tools = {}\n")).servers["a"].tools,
        None,
        "no list is no filter"
    );
}

#[test]
fn servers_keep_the_order_in_which_they_are_written() {
    let mut config = good(&servers(&["notes", "files", "web"], ""));
    assert_eq!(
        names(&config.whole_union().servers),
        ["notes", "files", "web"]
    );
    // As an embedder changes it.
    let web = config.servers.remove("web").unwrap();
    config.servers.insert("extra".parse().unwrap(), web);
    assert_eq!(
        names(&config.whole_union().servers),
        ["notes", "files", "extra"]
    );
}

#[test]
fn lists_name_servers_that_there_are() {
    let text = servers(&["files", "web"], "[unions.team]\nservers = [\"file\"]");
    let found = wrong(&text);
    assert_eq!(
        (found.0, found.2.as_str()),
        (
            6,
            "`servers` of `unions.team` has a server in it that is not configured"
        )
    );
    assert_eq!(help(&text), "did you mean `files`?");
    let text = servers(&["files", "web"], "[union]\nservers = [\"something\"]");
    assert_eq!(help(&text), "the servers are `files`, `web`");
    let caller = "[callers.alice]\nkey = \"0123456789abcdef\"\n";
    let text = servers(&["files"], &format!("{caller}servers = [\"web\"]"));
    assert_eq!(
        wrong(&text).2,
        "`servers` of `callers.alice` has a server in it that is not configured"
    );
    for (lines, message) in [
        ("[union]\nservers = []", "`servers` of `union` is empty"),
        ("[unions.t]", "`unions.t` has no `servers`"),
        (
            "[unions.t]\nservers = [\"a\", \"a\"]",
            "`servers` of `unions.t` has `a` twice",
        ),
    ] {
        assert_eq!(wrong(&servers(&["a", "b"], lines)).2, message);
    }
}

#[test]
fn a_list_may_name_a_server_of_a_flag() {
    let flags = Flags {
        servers: vec!["web".parse().unwrap()],
        ..Flags::default()
    };
    let text = servers(&["files"], "[unions.team]\nservers = [\"web\", \"files\"]");
    let parsed = Config::parse_with("f", &text, &|_| None, &flags).unwrap();
    assert_eq!(names(&parsed.unions["team"].servers), ["web", "files"]);
}

#[test]
fn values_are_checked() {
    for (lines, message) in [
        (
            "[union]\nnames = \"short\"",
            "`names` is neither `prefixed` nor `bare`",
        ),
        (
            "[union]\nseparator = \"\"",
            "`separator` is not 1 to 8 ASCII letters, digits, `-`, `_` or `.`",
        ),
        (
            "[union]\nseparator = \"123456789\"",
            "`separator` is not 1 to 8 ASCII letters, digits, `-`, `_` or `.`",
        ),
        (
            "[union]\nseparator = \"/\"",
            "`separator` is not 1 to 8 ASCII letters, digits, `-`, `_` or `.`",
        ),
        (
            "prefix = \"a b\"",
            "the prefix has a character that names cannot have",
        ),
        ("prefix = \"\"", "the prefix is empty"),
        (
            "tools = { deny = [\"\"] }",
            "`deny` has something in it that is not 1 to 256 bytes long",
        ),
        (
            "[unions.\"a b\"]\nservers = [\"a\"]",
            "the union's name has a character that names cannot have",
        ),
    ] {
        assert_eq!(wrong(&server(lines)).2, message);
    }
}

#[test]
fn a_union_is_not_called_like_a_server() {
    let text = servers(&["a"], "[unions.a]\nservers = [\"a\"]");
    let (line, column, message) = wrong(&text);
    assert_eq!((line, column), (3, 9));
    assert_eq!(
        message,
        "the union `a` has the name of a server, and both are at `/mcp/a`"
    );
    assert_eq!(
        help(&text),
        "give the union another name, such as `[unions.a-union]`"
    );
}

#[test]
fn prefixes_of_one_union_leave_no_doubt() {
    // `a___x` is `_x` of `a`, or `x` of `a_`.
    for (one, other) in [("a", "a__b"), ("a", "a_"), ("a", "a__")] {
        let (line, _, message) = wrong(&servers(&[one, other], ""));
        assert_eq!(line, 3);
        let begin =
            format!("a name that begins with `{other}__` can belong to `a` or to `{other}`");
        assert_eq!(message, begin);
    }
    assert_eq!(
        help(&servers(&["a", "a__b"], "")),
        "write `prefix = \"a-b\"` for `a__b`, or set another `separator`"
    );
    assert_eq!(
        help(&servers(&["a", "a_"], "")),
        "write `prefix = \"a-2\"` for `a_`, or set another `separator`"
    );
    let same = servers(&["a", "b"], "prefix = \"a\"");
    assert_eq!(wrong(&same).2, "`a` and `b` have the same prefix, `a`");
    let inside = servers(&["a", "b"], "prefix = \"c__d\"");
    let (line, column, message) = wrong(&inside);
    assert_eq!((line, column), (5, 10));
    assert_eq!(
        message,
        "the prefix of `b` has `__` in it, which separates prefixes from names"
    );
    // It holds for names that are bare as well: those that are not unique get prefixes.
    wrong(&servers(&["a", "a__b"], "[union]\nnames = \"bare\""));
}

#[test]
fn what_is_in_no_doubt_is_allowed() {
    good(&servers(&["a__b"], ""));
    good(&servers(&["a__b", "c__d", "e"], ""));
    good(&servers(&["a__b"], "prefix = \"x__y\""));
    good(&servers(&["a", "a__b"], "prefix = \"b\""));
    good(&servers(&["a", "a__b"], "[union]\nseparator = \".\""));
    good(&servers(&["a", "a-b", "ab", "A"], ""));
    // They are in no union together.
    let apart = "[union]\nservers = [\"a\"]\n[unions.t]\nservers = [\"a__b\"]";
    good(&servers(&["a", "a__b"], apart));
}

#[test]
fn each_union_counts_and_each_pair_once() {
    let apart = "[union]\nservers = [\"a\"]\n[unions.t]\nservers = [\"a\", \"a__b\"]\n";
    wrong(&servers(&["a", "a__b"], apart));
    let all = "[unions.t]\nservers = [\"a\", \"a__b\"]\n[unions.u]\nservers = [\"a__b\", \"a\"]\n";
    wrong(&servers(&["a", "a__b"], all));
}

#[test]
fn the_name_of_the_union_of_all_is_nobody_elses() {
    good(&servers(&["union"], ""));
    let (_, _, problem) = wrong(&servers(&["a", "union"], ""));
    assert!(problem.contains("the server `union`"), "{problem}");
    let (_, _, problem) = wrong(&servers(&["a", "b"], "[unions.union]\nservers = [\"a\"]"));
    assert!(problem.contains("the union `union`"), "{problem}");
}

#[test]
fn servers_that_are_added_later_are_checked_by_whoever_adds_them() {
    let mut config = good(&servers(&["a"], "[unions.b]\nservers = [\"a\"]"));
    assert_eq!(config.union_problems(), []);
    for name in ["a__b", "b"] {
        let server = Server::from_url("http://h/").unwrap();
        config.servers.insert(name.parse().unwrap(), server);
    }
    let problems = config.union_problems();
    let [
        UnionProblem::NamedLikeServer { name },
        UnionProblem::Ambiguous { server, other, .. },
    ] = &problems[..]
    else {
        panic!("{problems:?}");
    };
    assert_eq!(
        (name.as_ref(), server.as_ref(), other.as_ref()),
        ("b", "a", "a__b")
    );
}
