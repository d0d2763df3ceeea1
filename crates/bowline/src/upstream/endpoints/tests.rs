use std::collections::BTreeMap;

use bowline_egress::Tls;

use super::*;

fn endpoint(url: &str) -> Endpoint {
    let url: Uri = url.parse().unwrap();
    let origin = Origin::of(&url);
    let pool = Pool::new(origin.clone(), Tls::platform());
    Endpoint::at_url(&url, origin, pool, Health::default())
}

fn endpoints(urls: &[&str]) -> Endpoints {
    let endpoints = Endpoints::default();
    set(&endpoints, urls);
    endpoints
}

fn set(endpoints: &Endpoints, urls: &[&str]) {
    let wanted = urls.iter().map(|url| {
        (
            Endpoint::id(&url.parse().unwrap(), &Origin::of(&url.parse().unwrap())),
            *url,
        )
    });
    endpoints.set(wanted.collect(), endpoint);
}

#[tokio::test]
async fn sessions_are_spread_evenly() {
    let endpoints = endpoints(&["http://a/", "http://b/", "http://c/"]);
    let pins: Vec<Pin> = (0..300)
        .map(|_| endpoints.pick_avoiding(None).unwrap())
        .collect();
    let mut counts: BTreeMap<Box<str>, usize> = BTreeMap::new();
    for pin in &pins {
        *counts.entry(pin.id.clone()).or_default() += 1;
    }
    assert_eq!(counts.len(), 3);
    assert!(
        counts.values().all(|count| (95..=105).contains(count)),
        "{counts:?}"
    );
    drop(pins);
    assert!(
        endpoints
            .all()
            .iter()
            .all(|endpoint| endpoint.sessions() == 0)
    );
}

#[tokio::test]
async fn the_ill_and_the_draining_take_no_sessions() {
    let endpoints = endpoints(&["http://a/", "http://b/", "http://c/"]);
    let held = endpoints.pick_avoiding(None).unwrap();
    endpoints
        .all()
        .iter()
        .find(|endpoint| &*endpoint.id == "http://a/")
        .unwrap()
        .health
        .unreachable("refused");
    set(&endpoints, &["http://a/", "http://b/"]);
    for _ in 0..50 {
        assert_eq!(&*endpoints.pick_avoiding(None).unwrap().id, "http://b/");
    }
    endpoints.all().iter().for_each(|endpoint| {
        assert!(endpoint.health.unreachable("no route") || endpoint.health.ailment().is_some())
    });
    assert!(endpoints.pick_avoiding(None).is_err());
    drop(held);
}

#[tokio::test]
async fn a_draining_endpoint_stays_while_it_has_sessions() {
    let endpoints = endpoints(&["http://a/"]);
    let held = endpoints.pick_avoiding(None).unwrap();
    set(&endpoints, &["http://b/"]);
    assert_eq!(endpoints.all().len(), 2);
    assert!(held.is_draining());
    endpoints.forget_drained();
    assert_eq!(endpoints.all().len(), 2);
    drop(held);
    endpoints.forget_drained();
    assert_eq!(endpoints.all().len(), 1);
}

#[tokio::test]
async fn one_that_comes_back_is_the_same_one() {
    let endpoints = endpoints(&["http://a/", "http://b/"]);
    let held: Vec<Pin> = (0..4)
        .map(|_| endpoints.pick_avoiding(None).unwrap())
        .collect();
    set(&endpoints, &["http://b/"]);
    set(&endpoints, &["http://a/", "http://b/"]);
    assert_eq!(endpoints.all().len(), 2);
    assert_eq!(
        endpoints
            .all()
            .iter()
            .map(|endpoint| endpoint.sessions())
            .sum::<usize>(),
        4
    );
    assert!(held.iter().all(|pin| !pin.is_draining()));
}

#[tokio::test(start_paused = true)]
async fn draining_is_timed_from_its_beginning_and_forgotten_with_it() {
    let endpoints = endpoints(&["http://a/"]);
    let held = endpoints.pick_avoiding(None).unwrap();
    let minute = Duration::from_secs(60);
    set(&endpoints, &["http://b/"]);
    tokio::time::advance(minute / 2).await;
    set(&endpoints, &["http://b/", "http://c/"]);
    assert!(!held.has_drained_for(minute));
    tokio::time::advance(minute / 2).await;
    assert!(held.has_drained_for(minute));
    set(&endpoints, &["http://a/"]);
    assert!(!held.has_drained_for(Duration::ZERO));
    set(&endpoints, &["http://b/"]);
    assert!(!held.has_drained_for(minute));
}

#[tokio::test(start_paused = true)]
async fn where_one_still_answers_none_is_no_reason_to_give_up() {
    let endpoints = endpoints(&["http://a/", "http://b/", "http://c/"]);
    let all = endpoints.all();
    // The second time is longer than a first time.
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(2)).await;
        all[1].health.recovered();
        while all[1].health.ailment().is_none() {
            all[1].health.failed("503");
        }
    }
    all[0].health.unreachable("refused");
    all[2].health.unreachable("refused");
    let due = |one: &Endpoint| one.health.ailment().unwrap().until;
    assert!(due(&all[1]) > due(&all[0]));
    assert!(endpoints.pick_avoiding(None).unwrap_err().is_passing());
}
