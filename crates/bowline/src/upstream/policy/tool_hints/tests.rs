use super::*;

const FOUR: &str = r#"{"tools":[{"name":"r","annotations":{"readOnlyHint":true}},{"name":"i","annotations":{"idempotentHint":true,"title":"x"}},{"name":"w"},{"name":"d","annotations":{"destructiveHint":true}}]}"#;
const NOT_R: &str = r#"{"tools":[{"name":"r"}]}"#;
const PAGE: &str =
    r#"{"tools":[{"name":"p","annotations":{"readOnlyHint":true}}],"nextCursor":"c"}"#;
const SERVER: &str = "the server";
const URL: Option<&str> = Some("http://server/mcp");

/// The only caller of most tests.
fn own() -> Audience {
    shown_to(Caller::Local, "")
}

fn shown_to(caller: Caller, tenant: &str) -> Audience {
    let tenant = tenant.into();
    Audience { caller, tenant }
}

/// One gateway, one leg of it, and the store that it reads and writes.
#[derive(Default)]
struct Stage {
    tools: ToolHints,
    leg: LegHints,
    stored: Stored,
}

impl Stage {
    /// A listing that is requested and answered now.
    fn learn(&self, listing: &str) {
        let asked = Some(self.tools.since(&own()));
        self.tools.learn(&own(), &self.leg, listing, asked);
    }

    fn is_safe(&self, tool: &str) -> bool {
        self.was_safe(tool, self.tools.now())
    }

    /// The same for a call that was sent in this epoch.
    fn was_safe(&self, tool: &str, sent: Epoch) -> bool {
        let call = (tool, sent);
        self.tools.is_safe(&own(), &self.leg, call, false)
    }

    /// The same while the store can be read.
    fn is_safe_for_all(&self, tool: &str) -> bool {
        let call = (tool, self.tools.now());
        self.tools.is_safe(&own(), &self.leg, call, true)
    }

    fn share(&mut self) {
        let merged = self.tools.merge(&own(), &self.stored.about(SERVER));
        self.stored = merged.stored.clone();
        self.tools.stored(&own(), merged);
        assert!(self.tools.is_stored(&own()));
    }

    fn look(&mut self, store: &Stored) {
        self.stored = store.clone();
        self.tools.see(&own(), &store.about(SERVER));
    }

    fn names(&self) -> Vec<&str> {
        let names = self.stored.safe_tools.names.iter();
        names.map(|name| &**name).collect()
    }

    fn wants_list(&self, leg: &LegHints) -> bool {
        self.tools.wants_list(own, leg, URL).is_some()
    }
}

#[test]
fn tools_are_known_per_leg_until_they_change() {
    let stage = Stage::default();
    stage.learn(FOUR);
    let safe_tools = || ["r", "i", "w", "d"].map(|tool| stage.is_safe(tool));
    assert_eq!(safe_tools(), [true, true, false, false]);
    let other = LegHints::default();
    let call = ("r", stage.tools.now());
    assert!(!stage.tools.is_safe(&own(), &other, call, false));
    stage.learn(NOT_R);
    assert_eq!(safe_tools(), [false, true, false, false], "a later listing");
    stage.tools.revoke(&own());
    assert_eq!(safe_tools(), [false; 4]);
    stage.learn(FOUR);
    stage.learn(r#"{"tools":"many"}"#);
    assert_eq!(safe_tools(), [false; 4], "nobody knows what it says");
    stage.learn(FOUR);
    stage.tools.revoke_all();
    assert_eq!(safe_tools(), [false; 4], "another server");
}

#[test]
fn a_listing_from_before_only_takes_back() {
    let stage = Stage::default();
    for revoke in [
        (|tools| tools.revoke(&own())) as fn(&ToolHints),
        ToolHints::revoke_all,
    ] {
        let asked = Some(stage.tools.since(&own()));
        revoke(&stage.tools);
        stage.tools.learn(&own(), &stage.leg, FOUR, asked);
        assert!(!stage.is_safe("r"));
        stage.learn(FOUR);
        assert!(stage.is_safe("r"));
        stage.tools.learn(&own(), &stage.leg, NOT_R, asked);
        assert!(!stage.is_safe("r"));
    }
    stage.tools.learn(&own(), &stage.leg, FOUR, None);
    assert!(!stage.is_safe("r"));
}

#[test]
fn what_was_sent_before_a_change_is_not_repeated() {
    let stage = Stage::default();
    stage.learn(FOUR);
    let sent = stage.tools.now();
    assert!(stage.was_safe("r", sent));
    stage.tools.revoke(&own());
    stage.learn(FOUR);
    assert!(!stage.was_safe("r", sent) && stage.is_safe("r"));
}

#[test]
fn what_one_leg_is_told_takes_back_what_another_was() {
    let (stage, other) = (Stage::default(), LegHints::default());
    stage.learn(FOUR);
    let asked = Some(stage.tools.since(&own()));
    stage.tools.learn(&own(), &other, NOT_R, asked);
    assert!(!stage.is_safe("r") && !stage.is_safe("i"));
    assert!(stage.wants_list(&stage.leg), "so it is listed again");
}

#[test]
fn a_leg_wants_a_list_until_it_has_a_whole_one() {
    let stage = Stage::default();
    assert!(stage.wants_list(&stage.leg));
    assert!(!stage.wants_list(&stage.leg), "somebody asks");
    stage.leg.end_asking();
    stage.learn(PAGE);
    assert!(stage.is_safe("p") && stage.wants_list(&stage.leg));
    stage.leg.end_asking();
    stage.learn(FOUR);
    assert!(stage.is_safe("p") && !stage.wants_list(&stage.leg));
    stage.tools.revoke(&own());
    assert!(stage.wants_list(&stage.leg));
    // One that was answered with an error is over, too.
    let over = (stage.tools.since(&own()), stage.tools.next());
    stage.tools.listed(&own(), &stage.leg, over, URL);
    stage.leg.end_asking();
    assert!(!stage.wants_list(&stage.leg) && !stage.is_safe("r"));
}

#[test]
fn a_name_on_two_pages_is_safe_only_if_both_say_so() {
    let stage = Stage::default();
    let page = |read_only, next| {
        let tool = format!(r#"{{"name":"t","annotations":{{"readOnlyHint":{read_only}}}}}"#);
        format!(r#"{{"tools":[{tool}]{next}}}"#)
    };
    for (first, second) in [(false, true), (true, false), (false, false)] {
        for _ in 0..2 {
            stage.learn(&page(first, r#","nextCursor":"c""#));
            stage.learn(&page(second, ""));
            assert!(!stage.is_safe("t"), "{first}, {second}");
        }
    }
    stage.learn(&page(true, ""));
    assert!(stage.is_safe("t"), "it is on one page now");
}

#[test]
fn what_another_list_could_not_take_back_is_not_relied_on() {
    let stage = Stage::default();
    let tool = |number| format!(r#"{{"name":"{number}","annotations":{{"readOnlyHint":true}}}}"#);
    let many: Vec<_> = (0..MAX_TOOLS).map(tool).collect();
    let many = format!(r#"{{"tools":[{}]}}"#, many.join(","));
    let asked = Some(stage.tools.since(&own()));
    stage
        .tools
        .learn(&own(), &LegHints::default(), &many, asked);
    stage.learn(FOUR);
    assert!(!stage.is_safe("r"), "there was no room for its name");
}

#[test]
fn who_comes_while_a_list_is_asked_for_waits_for_it_unless_that_was_in_vain() {
    let stage = Stage::default();
    let wanted = || stage.tools.wants_list(own, &stage.leg, URL);
    assert!(matches!(wanted(), Some(WantedList::New { .. })));
    let (_over, waiting) = watch::channel(());
    stage.leg.begin_waiting(&waiting);
    assert!(matches!(wanted(), Some(WantedList::UnderWay(_))));
    stage.leg.end_waiting();
    assert!(wanted().is_none());
}

#[test]
fn a_list_counts_for_the_legs_that_waited_for_it() {
    let stage = Stage::default();
    let (waits, elsewhere, late) = (
        LegHints::default(),
        LegHints::default(),
        LegHints::default(),
    );
    assert!(stage.wants_list(&stage.leg) && stage.wants_list(&waits));
    let process = stage.tools.wants_list(own, &elsewhere, None);
    assert!(process.is_some());
    let sent = stage.tools.now();
    let over = (stage.tools.since(&own()), stage.tools.next());
    stage.learn(FOUR);
    assert!(stage.wants_list(&late));
    stage.tools.listed(&own(), &stage.leg, over, URL);
    assert!(stage.tools.got_list(&own(), &waits, URL));
    assert!(!stage.tools.got_list(&own(), &late, URL));
    assert!(!stage.tools.got_list(&own(), &elsewhere, None));
    let is_safe = |sent| stage.tools.is_safe(&own(), &waits, ("r", sent), false);
    assert!(is_safe(stage.tools.now()));
    assert!(!is_safe(sent), "it may have met another server");
    assert!(stage.was_safe("r", sent), "it met the one that was asked");
}

#[test]
fn legs_with_equal_hints_share_them() {
    let (stage, other) = (Stage::default(), LegHints::default());
    stage.learn(FOUR);
    let asked = Some(stage.tools.since(&own()));
    stage.tools.learn(&own(), &other, FOUR, asked);
    let of = |leg: &LegHints| Arc::clone(&leg.state.lock().hints.as_ref().unwrap().tools);
    assert!(Arc::ptr_eq(&of(&stage.leg), &of(&other)));
}

#[test]
fn what_one_gateway_revokes_counts_nowhere() {
    let (mut one, mut other) = (Stage::default(), Stage::default());
    one.look(&Stored::default());
    one.learn(FOUR);
    assert!(!one.is_safe_for_all("r"), "the store does not know it yet");
    one.share();
    assert!(one.is_safe_for_all("r"));
    assert_eq!(one.names(), ["i", "r"]);
    other.look(&one.stored);
    other.learn(FOUR);
    assert!(other.is_safe_for_all("r"));
    // A gateway that never was shown the tool itself takes it back as well.
    let mut third = Stage::default();
    for takes_back in [
        (|stage| stage.tools.revoke(&own())) as fn(&Stage),
        |stage| stage.learn(NOT_R),
    ] {
        third.look(&one.stored);
        takes_back(&third);
        third.share();
        for stage in [&mut one, &mut other] {
            let asked = Some(stage.tools.since(&own()));
            stage.look(&third.stored);
            assert!(!stage.is_safe("r"));
            // Requested before that.
            stage.tools.learn(&own(), &stage.leg, FOUR, asked);
            assert!(!stage.is_safe("r"));
            stage.learn(FOUR);
            stage.share();
            assert!(stage.is_safe_for_all("r"));
            third.stored = stage.stored.clone();
        }
    }
}

#[test]
fn what_is_revoked_while_the_store_is_told_is_told_next() {
    let mut stage = Stage::default();
    stage.look(&Stored::default());
    stage.learn(FOUR);
    stage.share();
    assert_eq!(stage.names(), ["i", "r"]);
    let merged = stage.tools.merge(&own(), &stage.stored);
    stage.tools.revoke(&own());
    stage.tools.stored(&own(), merged);
    assert!(!stage.tools.is_stored(&own()));
    assert_eq!(stage.tools.unstored(), [own()]);
    stage.share();
    assert_eq!(stage.names(), [""; 0]);
    let counts = stage.stored.counts;
    // Nobody relies on anything now.
    stage.tools.revoke(&own());
    stage.share();
    assert_eq!(stage.stored.counts, counts);
}

#[test]
fn what_was_learnt_without_the_store_does_not_outlive_its_return() {
    let mut stage = Stage::default();
    stage.learn(FOUR);
    assert!(stage.is_safe("r"));
    stage.look(&Stored::default());
    assert!(!stage.is_safe("r"), "another gateway may have revoked it");
}

#[test]
fn what_is_stored_of_another_server_counts_for_nothing() {
    let mut stage = Stage::default();
    stage.look(&Stored::default());
    stage.learn(FOUR);
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
    stage.learn(&listing(4 * MAX_TOOLS, "t"));
    stage.learn(&listing(9, &"x".repeat(MAX_NAMES / 4)));
    let merged = stage.tools.merge(&own(), &stage.stored.about(SERVER));
    stage.stored = merged.stored;
    assert!(stage.stored.safe_tools.names.len() <= MAX_TOOLS);
    let bytes = serde_json::to_vec(&stage.stored).unwrap();
    assert!(bytes.len() < 4 * MAX_NAMES);
    assert_eq!(
        serde_json::from_slice::<Stored>(&bytes).unwrap(),
        stage.stored
    );
}

#[test]
fn what_one_caller_or_tenant_is_shown_says_nothing_of_another() {
    let (tools, leg) = (ToolHints::default(), LegHints::default());
    let acme = shown_to(Caller::Local, "acme");
    let ann = shown_to(Caller::Named("ann".parse().unwrap(), None), "");
    let asked = Some(tools.since(&acme));
    tools.learn(&acme, &leg, FOUR, asked);
    assert!(tools.is_safe(&acme, &leg, ("r", tools.now()), false));
    for other in [own(), ann] {
        tools.revoke(&other);
        assert!(!tools.is_safe(&other, &leg, ("r", tools.now()), false));
    }
    assert!(tools.is_safe(&acme, &leg, ("r", tools.now()), false));
}
