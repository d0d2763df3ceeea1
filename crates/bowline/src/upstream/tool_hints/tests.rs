use super::*;

const FOUR: &str = r#"{"tools":[{"name":"r","annotations":{"readOnlyHint":true}},{"name":"i","annotations":{"idempotentHint":true,"title":"x"}},{"name":"w"},{"name":"d","annotations":{"destructiveHint":true}}]}"#;
const NOT_R: &str = r#"{"tools":[{"name":"r"}]}"#;
const SERVER: &str = "the server";

/// The only caller of most tests.
fn own() -> Audience {
    shown_to(Caller::Local, "")
}

fn shown_to(caller: Caller, tenant: &str) -> Audience {
    let tenant = tenant.into();
    Audience { caller, tenant }
}

/// One gateway, and the store that it reads and writes.
#[derive(Default)]
struct Stage {
    tools: ToolHints,
    stored: Stored,
    version: u64,
}

impl Stage {
    /// A listing that is requested and answered now.
    fn learn(&self, listing: &str, sharing: Sharing) -> bool {
        let asked = Some(self.tools.epoch(&own()));
        self.tools.learn(&own(), listing, asked, sharing)
    }

    fn is_safe(&self, tool: &str) -> bool {
        self.was_safe(tool, self.tools.now())
    }

    /// The same for a call that was sent in this epoch.
    fn was_safe(&self, tool: &str, called: Epoch) -> bool {
        self.tools.is_safe(&own(), tool, called)
    }

    fn merge(&self) -> Merged {
        let read = self.tools.epoch(&own());
        let stored = self.stored.about(SERVER);
        let merged = self
            .tools
            .merge(&own(), &stored, Some(Version(self.version)), read);
        merged.unwrap()
    }

    /// Stores the merged value. Returns whether there is more to store.
    fn put(&mut self, merged: &Merged) -> bool {
        self.version += 1;
        self.stored = merged.stored.clone();
        let version = Some(Version(self.version));
        self.tools.shared(&own(), merged, version)
    }

    fn share(&mut self) -> bool {
        let merged = self.merge();
        self.put(&merged)
    }

    fn look(&self, store: &Stored, version: u64) {
        let read = self.tools.epoch(&own());
        let version = Some(Version(version));
        self.tools.see(&own(), &store.about(SERVER), version, read);
    }

    fn names(&self) -> Vec<&str> {
        let names = self.stored.safe_tools.names.iter();
        names.map(|name| &**name).collect()
    }
}

#[test]
fn tools_are_known_per_caller_until_they_change() {
    let tools = ToolHints::default();
    let ann = Caller::Named("ann".parse().unwrap(), None);
    let (ann, bob) = (shown_to(ann, ""), own());
    let learn = |listing: &str| {
        let asked = Some(tools.epoch(&ann));
        tools.learn(&ann, listing, asked, Sharing::Alone)
    };
    assert!(!learn(FOUR));
    let safe_tools = |caller: &Audience| {
        ["r", "i", "w", "d"].map(|tool| tools.is_safe(caller, tool, tools.now()))
    };
    assert_eq!(safe_tools(&ann), [true, true, false, false]);
    assert_eq!(safe_tools(&bob), [false; 4]);
    learn(NOT_R);
    assert_eq!(
        safe_tools(&ann),
        [false, true, false, false],
        "a later listing counts"
    );
    assert!(!tools.forget(&ann, Forgetting::Changed, Sharing::Alone));
    assert_eq!(safe_tools(&ann), [false; 4]);
    learn(FOUR);
    learn(r#"{"tools":"many"}"#);
    assert_eq!(safe_tools(&ann), [false; 4], "nobody knows what it says");
    learn(FOUR);
    tools.lose_all();
    assert_eq!(safe_tools(&ann), [false; 4], "another server");
}

#[test]
fn a_listing_from_before_only_takes_back() {
    let stage = Stage::default();
    let caller = &own();
    for forgets in [
        (|tools| {
            tools.forget(&own(), Forgetting::Changed, Sharing::Alone);
        }) as fn(&ToolHints),
        |tools| tools.lose(&own()),
        ToolHints::lose_all,
    ] {
        let asked = Some(stage.tools.epoch(caller));
        forgets(&stage.tools);
        stage.tools.learn(caller, FOUR, asked, Sharing::Alone);
        assert!(!stage.is_safe("r"));
        stage.learn(FOUR, Sharing::Alone);
        assert!(stage.is_safe("r"));
        stage.tools.learn(caller, NOT_R, asked, Sharing::Alone);
        assert!(!stage.is_safe("r") && stage.is_safe("i"));
    }
    stage.tools.learn(caller, FOUR, None, Sharing::Alone);
    assert!(!stage.is_safe("r"));
}

#[test]
fn a_call_that_was_sent_before_a_loss_is_judged_by_what_was_known_then() {
    let (stage, caller) = (Stage::default(), &own());
    let early = stage.tools.now();
    stage.learn(FOUR, Sharing::Alone);
    let sent = stage.tools.now();
    // The gateway that recovers clears the hints, and continues with the new generation.
    stage
        .tools
        .forget(caller, Forgetting::Generation, Sharing::Alone);
    stage.tools.lose(caller);
    let later = stage.tools.now();
    assert!(stage.was_safe("r", sent));
    assert!(!stage.was_safe("r", later) && !stage.was_safe("r", early));
    stage.learn(NOT_R, Sharing::Alone);
    assert!(!stage.was_safe("r", sent) && stage.was_safe("i", sent));
    stage.learn(FOUR, Sharing::Alone);
    assert!(stage.was_safe("r", later) && !stage.was_safe("r", sent));
    // The tools may have changed before the call ran.
    stage
        .tools
        .forget(caller, Forgetting::Changed, Sharing::Alone);
    assert!(!stage.was_safe("i", sent) && !stage.was_safe("r", later));
    // The same for a gateway that learns of it from the store.
    let (mut one, other) = (Stage::default(), Stage::default());
    for why in [Forgetting::Generation, Forgetting::Changed] {
        one.learn(FOUR, Sharing::All);
        one.share();
        other.look(&one.stored, one.version);
        let sent = other.tools.now();
        assert!(other.was_safe("r", sent));
        one.tools.forget(caller, why, Sharing::All);
        one.share();
        other.look(&one.stored, one.version);
        assert_eq!(other.was_safe("r", sent), why == Forgetting::Generation);
        assert!(!other.is_safe("r"));
    }
}

#[test]
fn only_news_are_shared_and_by_one_at_a_time() {
    let mut stage = Stage::default();
    assert!(stage.learn(FOUR, Sharing::OnlyNew));
    assert!(!stage.learn(NOT_R, Sharing::OnlyNew), "somebody is at it");
    assert!(!stage.share());
    assert_eq!(stage.names(), ["i"]);
    assert!(!stage.learn(NOT_R, Sharing::OnlyNew), "nothing new");
    assert!(stage.learn(NOT_R, Sharing::All));
    stage.tools.not_shared(&own());
    assert!(stage.learn(NOT_R, Sharing::OnlyNew), "once more");
}

#[test]
fn what_is_learnt_while_the_store_is_told_counts() {
    let mut stage = Stage::default();
    stage.learn(FOUR, Sharing::OnlyNew);
    let merged = stage.merge();
    stage.learn(NOT_R, Sharing::OnlyNew);
    assert!(stage.put(&merged));
    assert!(!stage.is_safe("r"));
    stage.look(&stage.stored, stage.version);
    assert!(!stage.is_safe("r"), "the store is behind");
    assert!(!stage.share());
    assert_eq!(stage.names(), ["i"]);
    // The same for cleared hints.
    assert!(stage.learn(FOUR, Sharing::OnlyNew));
    let merged = stage.merge();
    assert!(
        !stage
            .tools
            .forget(&own(), Forgetting::Changed, Sharing::OnlyNew)
    );
    assert!(stage.put(&merged));
    assert!(!stage.is_safe("i"));
    assert!(!stage.share());
    assert_eq!(stage.names(), [""; 0]);
    // Also if older changes are stored after that.
    assert!(
        stage
            .tools
            .forget(&own(), Forgetting::Changed, Sharing::OnlyNew)
    );
    stage.learn(FOUR, Sharing::OnlyNew);
    let merged = stage.merge();
    stage
        .tools
        .forget(&own(), Forgetting::Changed, Sharing::OnlyNew);
    assert!(stage.put(&merged));
    assert!(!stage.is_safe("i"));
    assert!(!stage.share());
    assert_eq!(stage.names(), [""; 0]);
    // A value that was read before another one was written, and arrives after it.
    let mut old = Stored::default().about(SERVER);
    old.safe_tools.set("r", true);
    stage.look(&old, 1);
    assert!(!stage.is_safe("r"));
}

#[test]
fn what_another_gateway_forgot_does_not_come_back() {
    let (mut one, mut other) = (Stage::default(), Stage::default());
    one.learn(FOUR, Sharing::All);
    one.share();
    other.look(&one.stored, one.version);
    assert!(other.is_safe("r"));
    // Hints that are not stored yet, and a listing that was requested before the other gateway
    // cleared.
    other.learn(FOUR, Sharing::All);
    let asked = Some(other.tools.epoch(&own()));
    one.tools
        .forget(&own(), Forgetting::Generation, Sharing::All);
    one.share();
    (other.stored, other.version) = (one.stored.clone(), one.version);
    assert!(!other.share());
    assert!(!other.is_safe("r"));
    assert_eq!(other.names(), [""; 0]);
    other.tools.learn(&own(), FOUR, asked, Sharing::All);
    assert!(!other.is_safe("r"));
    other.learn(FOUR, Sharing::All);
    assert!(!other.share());
    assert_eq!(other.names(), ["i", "r"]);
    // A value that was read before hints were cleared here, and arrives after that.
    let read = other.tools.epoch(&own());
    other.tools.lose(&own());
    let (stored, version) = (other.stored.about(SERVER), Some(Version(other.version)));
    other.tools.see(&own(), &stored, version, read);
    assert!(!other.is_safe("r"));
    let merged = other.tools.merge(&own(), &stored, version, read);
    assert!(merged.is_none());
}

#[test]
fn what_is_stored_of_another_server_counts_for_nothing() {
    let mut stage = Stage::default();
    stage.learn(FOUR, Sharing::All);
    stage.share();
    assert_eq!(stage.names(), ["i", "r"]);
    let stored = &stage.stored;
    assert_eq!(stored.about(SERVER), *stored);
    assert_eq!(stored.about("another").safe_tools, SafeTools::default());
}

#[test]
fn a_listing_without_end_costs_no_more() {
    let mut stage = Stage::default();
    let listing = |count: usize, name: &str| {
        let one = |number| {
            format!(r#"{{"name":"{name}{number}","annotations":{{"readOnlyHint":true}}}}"#)
        };
        let all: Vec<_> = (0..count).map(one).collect();
        format!(r#"{{"tools":[{}]}}"#, all.join(","))
    };
    stage.learn(&listing(MAX_UNSHARED + 9, "t"), Sharing::All);
    stage.learn(&listing(9, &"x".repeat(MAX_NAMES / 4)), Sharing::All);
    stage.share();
    assert!(stage.stored.safe_tools.names.len() <= MAX_TOOLS);
    let bytes = serde_json::to_vec(&stage.stored).unwrap();
    assert!(bytes.len() < 4 * MAX_NAMES);
    assert_eq!(
        serde_json::from_slice::<Stored>(&bytes).unwrap(),
        stage.stored
    );
}

#[test]
fn what_one_tenant_is_shown_says_nothing_of_another() {
    let tools = ToolHints::default();
    let (acme, other) = (
        shown_to(Caller::Local, "acme"),
        shown_to(Caller::Local, "other"),
    );
    let asked = Some(tools.epoch(&acme));
    tools.learn(&acme, FOUR, asked, Sharing::Alone);
    assert!(tools.is_safe(&acme, "r", tools.now()));
    assert!(!tools.is_safe(&other, "r", tools.now()));
    assert!(!tools.is_safe(&own(), "r", tools.now()));
}
