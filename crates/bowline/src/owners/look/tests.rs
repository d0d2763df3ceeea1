use super::*;

const NONE: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

fn listed(id: &str, name: &str, left: Duration) -> ListedGateway {
    let presence = Presence {
        id: id.to_owned(),
        version: String::new(),
        seal_keys: Vec::new(),
        servers: String::new(),
        peer: None,
    };
    ListedGateway {
        presence: Some(presence),
        left,
        name: name.into(),
        said: Box::default(),
    }
}

fn unreadable(left: Duration) -> ListedGateway {
    ListedGateway {
        presence: None,
        ..listed("?", "?", left)
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_goes_on_while_it_is_present_or_alone() {
    let now = Instant::now();
    let (me, silent) = (listed("a", "a/1", 5 * SECOND), listed("a", "a/1", NONE));
    let other = |left| listed("b", "b/1", left);
    for (found, holds) in [
        (vec![], NONE),
        (vec![me.clone()], 5 * SECOND),
        (vec![me.clone(), other(SECOND)], 5 * SECOND),
        (vec![silent.clone()], ALONE),
        (vec![silent.clone(), other(NONE)], ALONE),
        (vec![silent.clone(), other(SECOND)], NONE),
        (vec![silent.clone(), unreadable(SECOND)], NONE),
        (vec![silent.clone(), unreadable(NONE)], ALONE),
        (vec![silent.clone(), me], 5 * SECOND),
        // Who is not listed is gone for everybody.
        (vec![other(NONE)], NONE),
        // Whatever somebody wrote there.
        (vec![listed("a", "a/1", Duration::MAX)], HOLDS),
    ] {
        let until = Look::new("a", now, &found).holds_until();
        assert_eq!(until - now, holds, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_gateway_is_gone_for_one_that_it_would_have_seen() {
    let (left, mut me) = (10 * SECOND, Visible::default());
    let gone = |name: &str, me: &mut Visible| {
        let found = [listed("a", name, left), listed("b", "b/1", NONE)];
        let look = Look::new("a", Instant::now(), &found);
        me.note(&look);
        let not_gone = look.not_gone(me).unwrap().len();
        assert_eq!(not_gone + look.gone(me).count(), 2);
        not_gone == 1
    };
    assert!(!gone("a/1", &mut me));
    tokio::time::advance(ALONE - SECOND).await;
    assert!(!gone("a/1", &mut me));
    tokio::time::advance(SECOND).await;
    assert!(gone("a/1", &mut me));
    // It was not present for a while.
    assert!(!gone("a/2", &mut me));
    tokio::time::advance(ALONE).await;
    assert!(gone("a/2", &mut me));
    let look = [listed("a", "a/2", NONE)];
    me.note(&Look::new("a", Instant::now(), &look));
    assert!(!gone("a/2", &mut me));
    // One that cannot be read may be anybody, until it is gone.
    let found = [listed("a", "a/2", left), unreadable(NONE)];
    let look = Look::new("a", Instant::now(), &found);
    assert!(look.not_gone(&me).is_none() && look.unreadable() == 0);
    tokio::time::advance(ALONE).await;
    let look = Look::new("a", Instant::now(), &found);
    assert_eq!(look.not_gone(&me).unwrap().len(), 1);
}

/// A store as Redis is one, and gateways that look at it.
struct Model {
    takes: Takes,
    list: Vec<(String, String)>,
    keys: std::collections::HashMap<String, Instant>,
    gateways: Vec<Gateway>,
    /// Who owns the thing.
    owner: String,
    random: u64,
    taken_over: usize,
    held_alone: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Everything,
    Renewals,
    Nothing,
}

#[derive(Default)]
struct Gateway {
    id: String,
    appearances: usize,
    visible: Visible,
    holds_until: Option<Instant>,
    looks_since: Option<Instant>,
}

impl Model {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// A gateway appears as `bowline_store` does it, as far as the store lets it.
    fn appear(&mut self, at: usize) {
        let (takes, now) = (self.takes, Instant::now());
        let gateway = &mut self.gateways[at];
        let name = |number: usize| format!("{}/{number}", gateway.id);
        let (current, next) = (name(gateway.appearances), name(gateway.appearances + 1));
        let is_there = self.keys.get(&current).is_some_and(|until| now < *until);
        let name = match (is_there, takes) {
            (_, Takes::Nothing) | (false, Takes::Renewals) => return,
            (true, _) => current,
            (false, Takes::Everything) => {
                gateway.appearances += 1;
                next
            }
        };
        self.keys.insert(name.clone(), now + HOLDS);
        let listed = (name, gateway.id.clone());
        if takes == Takes::Everything && !self.list.contains(&listed) {
            self.list.push(listed);
        }
    }

    fn look(&mut self, at: usize, began: Instant) {
        let now = Instant::now();
        let left = |name| self.keys.get(name).map_or(NONE, |until| *until - now);
        let found = self
            .list
            .iter()
            .map(|(name, id)| listed(id, name, left(name)));
        let found: Vec<_> = found.collect();
        let gateway = &mut self.gateways[at];
        let look = Look::new(&gateway.id, began, &found);
        gateway.visible.note(&look);
        let until = look.holds_until();
        gateway.holds_until = gateway.holds_until.max(Some(until));
        let mine = |one: &&ListedGateway| look.is_mine(one) && is_present(one);
        self.held_alone += usize::from(now < until && !found.iter().any(|one| mine(&one)));
        let (me, not_gone) = (gateway.id.clone(), look.not_gone(&gateway.visible).unwrap());
        let is_gone = !not_gone.iter().any(|one| one.id == self.owner);
        let forgotten: Vec<_> = look
            .gone(&gateway.visible)
            .map(|one| one.name.clone())
            .collect();
        if self.takes == Takes::Everything {
            self.list
                .retain(|(name, _)| !forgotten.contains(&name.as_str().into()));
            if is_gone && self.owner != me {
                let owner = self.gateways.iter().find(|one| one.id == self.owner);
                let held = owner.and_then(|owner| owner.holds_until);
                assert!(held.is_none_or(|until| until <= now), "two owners");
                self.owner = me;
                self.taken_over += 1;
            }
        }
    }
}

/// Gateways that look, hang, die and start on a store that takes writes or not: who takes over does so only when the
/// owner has stopped.
#[tokio::test(start_paused = true)]
async fn there_are_never_two_owners() {
    let (mut taken_over, mut held_alone) = (0, 0);
    for seed in 0..300 {
        let gateway = |number: usize| Gateway {
            id: number.to_string(),
            ..Gateway::default()
        };
        let mut model = Model {
            takes: Takes::Everything,
            list: Vec::new(),
            keys: std::collections::HashMap::new(),
            gateways: (0..3).map(gateway).collect(),
            owner: "0".to_owned(),
            random: seed,
            taken_over: 0,
            held_alone: 0,
        };
        let mut started = 3;
        // Some hang for long.
        let mut hanging = [0; 3];
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(model.random(400))).await;
            if model.random(60) == 0 {
                let ways = [Takes::Everything, Takes::Renewals, Takes::Nothing];
                model.takes = ways[model.random(3) as usize];
            }
            let at = model.random(3) as usize;
            if hanging[at] > 0 {
                hanging[at] -= 1;
                continue;
            }
            match (model.random(100), model.gateways[at].looks_since.take()) {
                (0, _) => hanging[at] = model.random(60),
                (1, _) => {
                    model.gateways[at] = gateway(started);
                    started += 1;
                }
                (2, _) => {
                    let id = model.gateways[at].id.clone();
                    model.list.retain(|(_, whose)| *whose != id);
                    model.gateways[at] = gateway(started);
                    started += 1;
                }
                (_, Some(began)) => model.look(at, began),
                (_, None) => {
                    model.appear(at);
                    model.gateways[at].looks_since = Some(Instant::now());
                }
            }
        }
        taken_over += model.taken_over;
        held_alone += model.held_alone;
    }
    assert!(
        taken_over > 300 && held_alone > 300,
        "{taken_over} {held_alone}"
    );
}
