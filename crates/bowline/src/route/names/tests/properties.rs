//! What holds for any servers and any names.

use std::collections::{BTreeMap, HashSet};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

type Servers = BTreeMap<String, Vec<String>>;

/// Names that collide often: few letters, separators, the prefixes of others, and some that are too long.
fn own_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab_]{0,4}",
        2 => "(a|b|ab|a_b)(__|_)[ab]{0,2}",
        2 => "[ab. ]{0,4}",
        1 => "[ab.]{0,2}_?0[a-z2-7]{10}",
        1 => "[ab.]{40,60}",
        1 => "[ab]{50,70}",
        1 => "\\PC{0,66}",
    ]
}

fn servers() -> impl Strategy<Value = Servers> {
    let name = prop_oneof!["[ab]{1,3}", "[ab](_|__|-)[ab]{0,2}", "p{60}[ab]{1,3}",];
    btree_map(name, vec(own_name(), 0..6), 1..5)
}

fn style() -> impl Strategy<Value = UnionNames> {
    prop_oneof![Just(UnionNames::Prefixed), Just(UnionNames::Bare)]
}

/// The names of these servers; `None` if the configuration would be refused.
fn of(servers: &Servers, style: UnionNames) -> Option<Names> {
    let names: Vec<_> = servers.keys().map(String::as_str).collect();
    let config = config(&names, style);
    let is_refused = !config.union_problems().is_empty();
    (!is_refused).then(|| names_of(&config))
}

fn catalogue(servers: &Servers) -> Having<'_> {
    let mut having = Vec::new();
    for (name, own) in servers {
        let own = own.iter().map(String::as_str).collect();
        having.push((name.parse().unwrap(), own));
    }
    Having(having)
}

/// What clients see, and what each name means.
fn meanings(names: &Names, having: &Having<'_>) -> BTreeMap<String, (String, String)> {
    let catalogue = having.catalogue();
    let listed = names.exposed(&catalogue);
    let meaning = |one: &Exposed| {
        let (server, own) = &catalogue[one.place.server];
        (server.to_string(), own[one.place.item].to_owned())
    };
    let pairs = listed
        .exposed
        .iter()
        .map(|one| (one.name.clone(), meaning(one)));
    let all: BTreeMap<_, _> = pairs.collect();
    assert_eq!(all.len(), listed.exposed.len(), "names are unique");
    assert!(listed.refused.is_empty());
    all
}

proptest! {
    #[test]
    fn names_are_unique_short_stable_and_lead_back(servers in servers(), style in style()) {
        let Some(names) = of(&servers, style) else { return Ok(()); };
        let having = catalogue(&servers);
        let all = meanings(&names, &having);
        for (name, (server, own)) in &all {
            prop_assert!(name.len() <= MAX && name.chars().all(is_plain), "{}", name);
            prop_assert_eq!(having.resolve(&names, name), owned(server, own));
        }
        // Everything is there, and nothing twice.
        let meant: HashSet<_> = all.values().cloned().collect();
        prop_assert_eq!(meant.len(), all.len());
        let there = servers.iter().flat_map(|(server, own)| own.iter().map(move |own| (server.clone(), own.clone())));
        prop_assert_eq!(there.collect::<HashSet<_>>(), meant);
        // Another start, with the servers and their names in another order.
        let mut turned = Having(having.0.iter().rev().cloned().collect());
        turned.0.iter_mut().for_each(|(_, own)| own.reverse());
        let mut again = of(&servers, style).unwrap();
        again.members.reverse();
        prop_assert_eq!(meanings(&again, &turned), all);
    }

    #[test]
    fn a_server_that_is_added_repoints_no_name(
        servers in servers(),
        style in style(),
        asked in vec(own_name(), 0..4),
    ) {
        let mut fewer = servers.clone();
        fewer.pop_first();
        let (Some(all), Some(before)) = (of(&servers, style), of(&fewer, style)) else { return Ok(()); };
        let (having, had) = (catalogue(&servers), catalogue(&fewer));
        let shown = meanings(&before, &had).into_keys();
        for name in shown.chain(asked) {
            let Ok(meant) = had.resolve(&before, &name) else { continue; };
            match having.resolve(&all, &name) {
                Ok(means) => prop_assert_eq!(means, meant),
                Err(NameRefusal::Ambiguous { candidates }) => {
                    prop_assert_eq!(style, UnionNames::Bare);
                    // One of these is what it meant.
                    let leads = |name: &String| having.resolve(&all, name) == Ok(meant.clone());
                    prop_assert!(candidates.iter().any(leads));
                }
                Err(refused) => prop_assert!(false, "{name}: {refused}"),
            }
        }
    }

    #[test]
    fn a_prefixed_name_always_resolves(servers in servers(), style in style()) {
        let Some(names) = of(&servers, style) else { return Ok(()); };
        let having = catalogue(&servers);
        for (server, own) in servers.iter().flat_map(|(server, own)| own.iter().map(move |own| (server, own))) {
            let member = names.member(&server.parse().unwrap()).unwrap();
            let name = names.prefixed(member, own);
            prop_assert_eq!(having.resolve(&names, &name), owned(server, own));
        }
    }
}
