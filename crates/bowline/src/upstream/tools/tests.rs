use super::*;

const FOUR: &str = r#"{"tools":[{"name":"r","annotations":{"readOnlyHint":true}},{"name":"i","annotations":{"idempotentHint":true,"title":"x"}},{"name":"w"},{"name":"d","annotations":{"destructiveHint":true}}]}"#;
const NOT_R: &str = r#"{"tools":[{"name":"r"}]}"#;

fn alone(_: Option<u64>) -> Sharing {
    Sharing::Alone
}

fn seen(version: u64) -> Seen {
    Seen {
        version: Some(Version(version)),
        at: 0,
    }
}

/// What is shared of what is at hand, as a store would have it.
fn share(tools: &Tools, caller: &Caller, stored: &mut Harmless) -> bool {
    let changes = tools.unshared(caller);
    changes.apply(stored);
    tools.shared(caller, stored.clone(), &changes, seen(20))
}

#[test]
fn tools_are_known_per_caller_until_they_change() {
    let tools = Tools::default();
    let (ann, bob) = (Caller::Named("ann".parse().unwrap()), Caller::Local);
    assert!(!tools.learn(&ann, FOUR, alone));
    let harmless =
        |caller: &Caller| ["r", "i", "w", "d"].map(|tool| tools.is_harmless(caller, tool));
    assert_eq!(harmless(&ann), [true, true, false, false]);
    assert_eq!(harmless(&bob), [false; 4]);
    tools.learn(&ann, NOT_R, alone);
    assert_eq!(
        harmless(&ann),
        [false, true, false, false],
        "a later listing counts"
    );
    assert!(!tools.forget(&ann, false));
    assert_eq!(harmless(&ann), [false; 4]);
    assert!(!tools.learn(&ann, "nonsense", alone));
}

#[test]
fn only_news_are_shared_and_by_one_at_a_time() {
    let (tools, caller) = (Tools::default(), Caller::Local);
    let mut stored = Harmless::default();
    assert!(tools.learn(&caller, FOUR, |_| Sharing::News));
    assert!(
        !tools.learn(&caller, NOT_R, |_| Sharing::News),
        "somebody is at it"
    );
    assert!(!share(&tools, &caller, &mut stored));
    assert_eq!(stored.to_bytes().unwrap(), br#"["i"]"#);
    assert!(
        !tools.learn(&caller, NOT_R, |_| Sharing::News),
        "nothing new"
    );
    assert!(tools.learn(&caller, NOT_R, |_| Sharing::All));
    tools.not_shared(&caller);
    assert!(tools.learn(&caller, NOT_R, |_| Sharing::News), "once more");
}

#[test]
fn what_is_learnt_while_the_store_is_told_counts() {
    let (tools, caller) = (Tools::default(), Caller::Local);
    let mut stored = Harmless::default();
    tools.learn(&caller, FOUR, |_| Sharing::News);
    let changes = tools.unshared(&caller);
    changes.apply(&mut stored);
    tools.learn(&caller, NOT_R, |_| Sharing::News);
    assert!(tools.shared(&caller, stored.clone(), &changes, seen(1)));
    assert!(!tools.is_harmless(&caller, "r"));
    tools.see(&caller, stored.clone(), seen(2));
    assert!(!tools.is_harmless(&caller, "r"), "the store is behind");
    assert!(!share(&tools, &caller, &mut stored));
    assert_eq!(stored.to_bytes().unwrap(), br#"["i"]"#);
    // And the same for what is forgotten.
    assert!(tools.learn(&caller, FOUR, |_| Sharing::News));
    let changes = tools.unshared(&caller);
    changes.apply(&mut stored);
    assert!(!tools.forget(&caller, true));
    assert!(tools.shared(&caller, stored.clone(), &changes, seen(21)));
    assert!(!tools.is_harmless(&caller, "i"));
    assert!(!share(&tools, &caller, &mut stored));
    assert_eq!(stored, Harmless::default());
    // Also if the store is told of something that was forgotten before.
    assert!(tools.forget(&caller, true));
    tools.learn(&caller, FOUR, |_| Sharing::News);
    let changes = tools.unshared(&caller);
    changes.apply(&mut stored);
    tools.forget(&caller, true);
    assert!(tools.shared(&caller, stored.clone(), &changes, seen(22)));
    assert!(!tools.is_harmless(&caller, "i"));
    assert!(!share(&tools, &caller, &mut stored));
    assert_eq!(stored, Harmless::default());
    // What was read before somebody wrote, and is told after.
    let mut old = Harmless::default();
    old.set("r", true);
    tools.see(&caller, old, seen(2));
    assert!(!tools.is_harmless(&caller, "r"));
}

#[test]
fn a_listing_without_end_costs_no_more() {
    let (tools, caller) = (Tools::default(), Caller::Local);
    let listing = |count: usize, name: &str| {
        let one = |number| {
            format!(r#"{{"name":"{name}{number}","annotations":{{"readOnlyHint":true}}}}"#)
        };
        let all: Vec<_> = (0..count).map(one).collect();
        format!(r#"{{"tools":[{}]}}"#, all.join(","))
    };
    tools.learn(&caller, &listing(MAX_UNSHARED + 9, "t"), |_| Sharing::All);
    tools.learn(&caller, &listing(9, &"x".repeat(MAX_NAMES / 4)), |_| {
        Sharing::All
    });
    let mut stored = Harmless::default();
    share(&tools, &caller, &mut stored);
    assert!(stored.names.len() <= MAX_TOOLS);
    assert!(stored.to_bytes().unwrap().len() < 4 * MAX_NAMES);
    assert_eq!(
        Harmless::parse(&stored.to_bytes().unwrap()).unwrap(),
        stored
    );
}
