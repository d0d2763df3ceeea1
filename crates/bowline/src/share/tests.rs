use super::*;

fn named(name: &str) -> Caller {
    Caller::Named(name.parse().unwrap(), None)
}

fn all(share: &Arc<Share>) -> Vec<Permit> {
    std::iter::from_fn(|| share.take()).collect()
}

#[test]
fn one_server_and_one_caller_have_all() {
    for limit in [1, 2, 3, 50, 20_000] {
        let common = Share::common(limit);
        common.share_out(1, 0);
        let server = ServerShares::of(&common);
        let taken = all(&server.of_caller(&Caller::Local));
        assert_eq!(taken.len(), limit);
        assert_eq!(server.exhausted(), ShareOwner::Gateway);
        drop(taken);
        assert_eq!(common.taken_by_all(), 0);
    }
}

#[test]
fn every_caller_at_every_server_has_its_share_however_greedy_the_others_are() {
    let (servers, callers) = (4, ["ann", "bob", "eve"]);
    let common = Share::common(960);
    common.share_out(servers, callers.len());
    let servers: Vec<_> = (0..servers).map(|_| ServerShares::of(&common)).collect();
    let mut held = Vec::new();
    // Eve takes whatever she can, and all callers what they can of all servers but the last.
    for server in &servers {
        held.extend(all(&server.of_caller(&named("eve"))));
    }
    for server in &servers[..3] {
        for caller in ["ann", "bob"] {
            held.extend(all(&server.of_caller(&named(caller))));
        }
    }
    assert_eq!(servers[0].exhausted(), ShareOwner::Server);
    assert_eq!(servers[3].exhausted(), ShareOwner::Caller);
    // 960 / 2 / 4 servers / 2 / 3 callers.
    for caller in ["ann", "bob"] {
        let mine = all(&servers[3].of_caller(&named(caller)));
        assert_eq!(mine.len(), 20, "{caller}");
        held.extend(mine);
    }
    assert_eq!(held.len(), 960);
    assert_eq!(servers[3].exhausted(), ShareOwner::Gateway);
}

#[test]
fn a_server_that_hangs_leaves_the_others_theirs() {
    let common = Share::common(50);
    common.share_out(2, 1);
    let (sick, well) = (ServerShares::of(&common), ServerShares::of(&common));
    let stuck = all(&sick.of_caller(&Caller::Local));
    assert_eq!((stuck.len(), sick.exhausted()), (38, ShareOwner::Server));
    assert!(sick.of_caller(&Caller::Local).is_scarce());
    let well = well.of_caller(&Caller::Local);
    for _ in 0..100 {
        assert_eq!(all(&well).len(), 12);
    }
}

#[test]
fn a_reload_never_makes_more_places() {
    let common = Share::common(100);
    common.share_out(1, 1);
    let first = ServerShares::of(&common);
    let mut held = all(&first.of_caller(&Caller::Local));
    held.truncate(60);
    common.share_out(2, 1);
    let second = ServerShares::of(&common);
    held.extend(all(&second.of_caller(&Caller::Local)));
    held.extend(all(&first.of_caller(&Caller::Local)));
    assert!(held.len() <= 100, "{}", held.len());
}
