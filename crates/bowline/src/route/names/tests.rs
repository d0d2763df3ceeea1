//! Names are unique, short and stable, and no server can take another's.

mod properties;

use super::*;
use crate::config::Config;
use crate::config::Server;

/// The names of the union of all servers.
pub(super) fn names_of(config: &Config) -> Names {
    let servers = config.servers.iter();
    let prefixes = servers.map(|(name, server)| (name.clone(), server.prefix(name).to_owned()));
    Names::new(&config.whole_union(), prefixes)
}

/// A configuration with these servers, all in its union.
fn config(servers: &[&str], style: UnionNames) -> Config {
    let mut config = Config::default();
    for name in servers {
        let server = Server::from_url("http://h/").unwrap();
        config.servers.insert(name.parse().unwrap(), server);
    }
    config.union.names = style;
    config
}

fn names(servers: &[&str], style: UnionNames) -> Names {
    let config = config(servers, style);
    names_of(&config)
}

fn prefixed(servers: &[&str]) -> Names {
    names(servers, UnionNames::Prefixed)
}

fn bare(servers: &[&str]) -> Names {
    names(servers, UnionNames::Bare)
}

/// Servers and what they have.
struct Having<'a>(Vec<(ServerName, Vec<&'a str>)>);

fn having<'a>(servers: &[(&str, &[&'a str])]) -> Having<'a> {
    let one = |(name, own): &(&str, &[&'a str])| (name.parse().unwrap(), own.to_vec());
    Having(servers.iter().map(one).collect())
}

impl<'a> Having<'a> {
    fn catalogue(&'a self) -> Vec<(&'a ServerName, Vec<&'a str>)> {
        let one = |(name, own): &'a (ServerName, Vec<&'a str>)| (name, own.clone());
        self.0.iter().map(one).collect()
    }

    fn exposed(&self, names: &Names) -> Vec<String> {
        let listed = names.exposed(&self.catalogue());
        assert_eq!(listed.refused, []);
        listed.exposed.into_iter().map(|one| one.name).collect()
    }

    /// The server and its own name for what clients call `name`.
    fn resolve(&self, names: &Names, name: &str) -> Result<(String, String), NameRefusal> {
        let resolved = names.resolve(name, &self.catalogue())?;
        Ok((resolved.server.to_string(), resolved.name))
    }
}

fn owned(server: &str, name: &str) -> Result<(String, String), NameRefusal> {
    Ok((server.to_owned(), name.to_owned()))
}

#[test]
fn a_short_name_needs_no_catalogue() {
    let names = prefixed(&["files", "web"]);
    let resolved = names.resolve_prefixed("files__get_user").unwrap();
    assert_eq!(
        (resolved.server.as_ref(), resolved.name.as_str()),
        ("files", "get_user")
    );
    let nothing = having(&[]);
    assert_eq!(nothing.resolve(&names, "web__x__y"), owned("web", "x__y"));
    assert_eq!(nothing.resolve(&names, "web__"), owned("web", ""));
    for unknown in ["x", "", "filesx__y", "other__x", "files_x"] {
        let refused = nothing.resolve(&names, unknown);
        assert_eq!(refused, Err(NameRefusal::Unknown), "{unknown}");
    }
}

#[test]
fn prefix_and_separator_are_the_operators() {
    let mut config = config(&["files", "web"], UnionNames::Prefixed);
    config.servers.get_mut("web").unwrap().prefix = Some("www".to_owned());
    config.union.separator = ".".to_owned();
    let names = names_of(&config);
    let all = having(&[("files", &["a"]), ("web", &["b"])]);
    assert_eq!(all.exposed(&names), ["files.a", "www.b"]);
    assert_eq!(all.resolve(&names, "www.b"), owned("web", "b"));
}

#[test]
fn a_name_that_is_too_long_is_cut_and_hashed() {
    let names = prefixed(&["files"]);
    // `files__` has 7 characters: 56 more are left as they are, and 57 are not.
    let (fits, long, other) = ("x".repeat(56), "x".repeat(57), "x".repeat(58));
    let all = having(&[("files", &[&fits, &long, &other])]);
    let exposed = all.exposed(&names);
    assert_eq!(exposed[0], format!("files__{fits}"));
    assert_eq!(exposed[1].len(), MAX);
    // It must be the same for all times.
    let cut = format!(
        "files__{}_{}",
        "x".repeat(46),
        hash(&"files".parse().unwrap(), &long)
    );
    assert_eq!(exposed[1], cut);
    assert_ne!(exposed[1], exposed[2]);
    for (name, own) in exposed.iter().zip([&fits, &long, &other]) {
        assert_eq!(all.resolve(&names, name), owned("files", own));
    }
    assert!(names.resolve_prefixed(&exposed[1]).is_none());
    let nothing = having(&[]);
    let refused = nothing.resolve(&names, &exposed[1]);
    assert_eq!(refused, Err(NameRefusal::Unknown));
}

#[test]
fn the_hash_is_the_same_for_all_times() {
    // printf 'files\0get_user' | sha256sum | xxd -r -p | base32
    assert_eq!(hash(&"files".parse().unwrap(), "get_user"), "lmqtu6b7go");
}

#[test]
fn a_name_that_imitates_one_that_was_cut_is_another() {
    let names = prefixed(&["files"]);
    let long = "x".repeat(100);
    let cut = having(&[("files", &[&long])]).exposed(&names).remove(0);
    let imitation = cut.strip_prefix("files__").unwrap();
    let both = having(&[("files", &[imitation, &long])]);
    let exposed = both.exposed(&names);
    assert_eq!(exposed[1], cut);
    assert_ne!(exposed[0], cut);
    assert_eq!(both.resolve(&names, &cut), owned("files", &long));
    // The imitation alone is not reached by the other's name.
    let alone = having(&[("files", &[imitation])]);
    assert_eq!(alone.resolve(&names, &cut), Err(NameRefusal::Unknown));
    // Nor is a bare one.
    let bare = bare(&["files"]);
    let all = having(&[("files", &[&cut, &long])]);
    assert_eq!(all.resolve(&bare, &cut), owned("files", &long));
}

#[test]
fn names_that_collide_by_their_hash_are_refused() {
    let mut names = prefixed(&["a", "b"]);
    names.hash = |_, _| "0000000000".to_owned();
    let (one, other) = ("x".repeat(80), "x".repeat(81));
    let all = having(&[("a", &[&one, &other, "short"]), ("b", &[&one])]);
    let listed = names.exposed(&all.catalogue());
    let exposed: Vec<_> = listed.exposed.iter().map(|one| one.place).collect();
    let place = |server, item| Place { server, item };
    assert_eq!(exposed, [place(0, 2), place(1, 0)]);
    let [Refused { name, places }] = &listed.refused[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(places, &[place(0, 0), place(0, 1)]);
    let refused = NameRefusal::Collision {
        servers: vec!["a".to_owned()],
    };
    assert_eq!(all.resolve(&names, name), Err(refused));
    assert_eq!(
        all.resolve(&names, &listed.exposed[1].name),
        owned("b", &one)
    );
}

#[test]
fn a_member_cannot_take_anothers_name() {
    let all = having(&[("files", &["web__x", "files__x"]), ("web", &["x"])]);
    let names = prefixed(&["files", "web"]);
    let exposed = ["files__web__x", "files__files__x", "web__x"];
    assert_eq!(all.exposed(&names), exposed);
    assert_eq!(all.resolve(&names, "web__x"), owned("web", "x"));
    // The same where names are bare, and before there is a server `web`.
    for servers in [&["files", "web"][..], &["files"]] {
        let bare = bare(servers);
        let files = having(&[("files", &["web__x", "files__x"])]);
        assert_eq!(files.exposed(&bare), exposed[..2]);
        assert_eq!(
            files.resolve(&bare, "files__web__x"),
            owned("files", "web__x")
        );
        assert_eq!(files.resolve(&bare, "files__x"), owned("files", "x"));
    }
    let bare = bare(&["files"]);
    let refused = all.resolve(&bare, "web__x");
    assert_eq!(refused, Err(NameRefusal::Unknown));
}

#[test]
fn a_bare_name_that_several_have_is_refused_with_all_of_them() {
    let names = bare(&["files", "web"]);
    let all = having(&[("files", &["search", "read"]), ("web", &["search"])]);
    assert_eq!(
        all.exposed(&names),
        ["files__search", "read", "web__search"]
    );
    assert_eq!(all.resolve(&names, "read"), owned("files", "read"));
    assert_eq!(all.resolve(&names, "files__read"), owned("files", "read"));
    assert_eq!(all.resolve(&names, "web__search"), owned("web", "search"));
    let refused = all.resolve(&names, "search").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "several servers have this name; use `files__search` or `web__search`"
    );
    // Where names are prefixed, no bare name means anything.
    let refused = all.resolve(&prefixed(&["files", "web"]), "read");
    assert_eq!(refused, Err(NameRefusal::Unknown));
}

#[test]
fn a_name_that_models_refuse_gets_another_that_leads_back() {
    let names = prefixed(&["files"]);
    let own = ["bad name!", "repo.list", "工具", "bad-name_", ""];
    let all = having(&[("files", &own)]);
    let exposed = all.exposed(&names);
    let hash = |own: &str| hash(&"files".parse().unwrap(), own);
    // It must be the same for all times.
    let changed = [
        format!("files__bad_name__0{}", hash("bad name!")),
        format!("files__repo_list_0{}", hash("repo.list")),
        format!("files_____0{}", hash("工具")),
    ];
    assert_eq!(exposed[..3], changed);
    assert_eq!(exposed[3..], ["files__bad-name_", "files__"]);
    for (name, own) in exposed.iter().zip(own) {
        assert!(name.chars().all(is_plain), "{name}");
        assert_eq!(all.resolve(&names, name), owned("files", own));
    }
    // Without a list nobody knows what it stands for.
    assert_eq!(names.resolve_prefixed(&exposed[0]), None);
    // A name that imitates one is changed itself.
    let imitation = exposed[0].strip_prefix("files__").unwrap();
    let both = having(&[("files", &[imitation, "bad name!"])]);
    let shown = both.exposed(&names);
    assert_ne!(shown[0], exposed[0]);
    assert_eq!(shown[1], exposed[0]);
    for (name, own) in shown.iter().zip([imitation, "bad name!"]) {
        assert_eq!(both.resolve(&names, name), owned("files", own));
    }
    let alone = having(&[("files", &[imitation])]);
    assert_eq!(
        alone.resolve(&names, &exposed[0]),
        Err(NameRefusal::Unknown)
    );
}

#[test]
fn odd_names_lead_back() {
    let odd = [
        "",
        "__x",
        "a b",
        "a_b",
        "naïve",
        "nai\u{308}ve",
        "工具",
        "\u{202e}x",
        "\0",
        "_",
    ];
    let all = having(&[("a", &odd), ("b", &[""])]);
    for style in [UnionNames::Prefixed, UnionNames::Bare] {
        let names = names(&["a", "b"], style);
        let exposed = all.exposed(&names);
        for (name, own) in exposed.iter().zip(odd) {
            assert!(name.chars().all(is_plain), "{name:?}");
            assert_eq!(all.resolve(&names, name), owned("a", own), "{name:?}");
        }
    }
    // One that gets too long by its change is cut.
    let names = prefixed(&["a"]);
    for length in [48, 49, 50, 60, 61, 70] {
        let long = "工".repeat(length);
        let all = having(&[("a", &[&long])]);
        let cut = all.exposed(&names).remove(0);
        assert_eq!(cut.len(), (length + 15).min(MAX), "{cut}");
        assert_eq!(all.resolve(&names, &cut), owned("a", &long));
    }
}

#[test]
fn a_name_that_is_listed_twice_counts_once() {
    let long = "x".repeat(90);
    let all = having(&[("a", &["t", "t", &long, &long, "u"])]);
    for style in [UnionNames::Prefixed, UnionNames::Bare] {
        let names = names(&["a"], style);
        let listed = names.exposed(&all.catalogue());
        assert_eq!(listed.refused, []);
        let items: Vec<_> = listed.exposed.iter().map(|one| one.place.item).collect();
        assert_eq!(items, [0, 2, 4]);
        for one in &listed.exposed {
            assert!(all.resolve(&names, &one.name).is_ok(), "{}", one.name);
        }
    }
}

#[test]
fn a_prefix_may_be_as_long_as_a_name() {
    let (one, other) = ("p".repeat(63), "p".repeat(64));
    let names = prefixed(&[&one, &other]);
    let all = having(&[(&one, &["", "x"]), (&other, &["", "x"])]);
    let exposed = all.exposed(&names);
    for (name, (server, own)) in
        exposed
            .iter()
            .zip([(&one, ""), (&one, "x"), (&other, ""), (&other, "x")])
    {
        assert_eq!(name.len(), MAX);
        assert_eq!(all.resolve(&names, name), owned(server, own));
    }
}

#[test]
fn what_is_of_no_member_is_left_out() {
    let all = having(&[("a", &["x"]), ("gone", &["x"])]);
    assert_eq!(all.exposed(&prefixed(&["a"])), ["a__x"]);
    assert_eq!(all.exposed(&bare(&["a"])), ["x"]);
    assert_eq!(all.resolve(&bare(&["a"]), "x"), owned("a", "x"));
}

#[test]
fn a_bare_name_is_refused_while_a_server_has_not_told_its_names() {
    let names = bare(&["files", "web", "db"]);
    let known = having(&[("files", &["search"]), ("web", &["fetch"])]);
    let db: ServerName = "db".parse().unwrap();
    let without = |name: &str| names.resolve_without(name, &known.catalogue(), &[&db]);
    for (name, candidates) in [
        ("search", "`db__search` or `files__search`"),
        ("other", "`db__other`"),
    ] {
        let refused = without(name).unwrap_err().to_string();
        let what = "`db` could not be listed and may have something of this name, too; use ";
        assert_eq!(refused, format!("{what}{candidates}"));
    }
    // A name that says its server is in no doubt.
    assert_eq!(without("files__search").unwrap().server.as_ref(), "files");
    let all = names.resolve_without("search", &known.catalogue(), &[]);
    assert_eq!(all.unwrap().server.as_ref(), "files");
}

#[test]
fn so_many_names_are_bare_and_no_more() {
    let own: Vec<String> = (0..=MAX_BARE).map(|number| number.to_string()).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let all = having(&[("a", &own)]);
    let exposed = all.exposed(&bare(&["a"]));
    assert_eq!(exposed[MAX_BARE - 1], own[MAX_BARE - 1]);
    assert_eq!(exposed[MAX_BARE], format!("a__{}", own[MAX_BARE]));
}
