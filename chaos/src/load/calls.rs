//! What is called next, and what is expected of it: from the seed.

use std::ops::Range;

use fastrand::Rng;
use serde_json::{Value, json};

use super::judge::{self, Expected};
use super::{LANES, forge};
use crate::Arguments;
use crate::history::Kind;
use crate::server::{Server, is_in_union, is_over_sse};
use crate::trouble::Trouble;

/// What every session calls, and how often.
const ALWAYS: [(Kind, usize); 7] = [
    (Kind::Ping, 4),
    (Kind::List, 4),
    (Kind::Resource, 4),
    (Kind::Read, 20),
    (Kind::StreamRead, 12),
    (Kind::Bump, 24),
    (Kind::Slow, 12),
];
/// The same for what a run may be without.
const AT_TIMES: [(Trouble, Kind, usize); 6] = [
    (Trouble::OwnAnswer, Kind::Refuse, 6),
    (Trouble::OwnAnswer, Kind::Torn, 2),
    (Trouble::Flip, Kind::Flip, 8),
    (Trouble::Cancel, Kind::Long, 4),
    (Trouble::Forge, Kind::Forge, 3),
    // It costs a process or stream.
    (Trouble::Unheard, Kind::Turn, 1),
];
/// One call in so many is two calls under one id.
const ONE_PAIR_IN: u8 = 20;
/// What a tool says when it refuses: the words of lost sessions, and codes that servers have for them.
const WORDS: [&str; 4] = [
    "Session not found",
    "card charged, but the checkout session has expired",
    "Bad Request: No valid session ID provided",
    "invalid session",
];
const CODES: [i64; 3] = [-32000, -32602, -32600];
const STATUSES: [u16; 8] = [404, 410, 400, 429, 401, 403, 500, 503];
/// How many milliseconds after a 404 to its message an answer comes on the stream, at most.
const COMES_AFTER_MS: u64 = 20;
/// A slow call that tells its progress no more often than this says nothing for so many milliseconds before: nobody can
/// know that it runs.
const QUIET_STEPS: u64 = 2;
const QUIET_MS: Range<u64> = 1000..4000;
/// How a call that is cancelled would go on.
const LONG_STEPS: u64 = 30;
const LONG_STEP_MS: u64 = 100;

/// The calls of one lane.
#[derive(Debug)]
pub(super) struct Calls {
    /// The client's own session, or the number of a client of all servers.
    client: usize,
    /// The servers that it calls.
    servers: Vec<Server>,
    lane: usize,
    random: Rng,
    kinds: Vec<Kind>,
    makes_pairs: bool,
    made: u64,
}

impl Calls {
    pub(super) fn new(
        arguments: &Arguments,
        client: usize,
        servers: Vec<Server>,
        lane: usize,
    ) -> Self {
        let mut seeds = Rng::with_seed(arguments.seed ^ 0x5eed);
        let place = (client * (LANES + 1) + lane) as u64;
        let seed = seeds
            .u64(..)
            .wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let at_times = AT_TIMES.iter();
        let can = |kind| !is_over_sse(client) && servers.iter().any(|server| has(*server, kind));
        let at_times =
            at_times.filter(|(trouble, kind, _)| can(*kind) && arguments.tries(*trouble));
        let at_times = at_times.map(|(_, kind, weight)| (*kind, *weight));
        let weighted = ALWAYS.into_iter().chain(at_times);
        let kinds = weighted.flat_map(|(kind, weight)| vec![kind; weight]);
        let kinds = kinds.collect();
        Self {
            client,
            servers,
            lane,
            random: Rng::with_seed(seed),
            kinds,
            makes_pairs: arguments.tries(Trouble::EqualIds) && !is_over_sse(client),
            made: 0,
        }
    }

    /// Calls only this server from now on.
    pub(super) fn only(&mut self, server: Server) {
        self.servers = vec![server];
    }

    pub(super) fn random(&mut self) -> &mut Rng {
        &mut self.random
    }

    pub(super) fn kind(&mut self) -> Kind {
        let drawn = self.random.choice(&self.kinds);
        drawn.copied().unwrap_or(Kind::Ping)
    }

    /// Two calls under one id, if it is their turn.
    pub(super) fn pair(&mut self) -> Option<[Expected; 2]> {
        if !self.makes_pairs || self.random.u8(..ONE_PAIR_IN) > 0 {
            return None;
        }
        let kinds = [Kind::Read, Kind::Bump, Kind::StreamRead, Kind::Slow];
        let [first, second] = [0; 2].map(|_| {
            let kind = self.random.choice(&kinds).copied();
            self.next(kind.unwrap_or(Kind::Read))
        });
        let id = first.id.clone();
        Some([first, Expected { id, ..second }])
    }

    /// A call that may be a member of a batch.
    pub(super) fn member(&mut self) -> Expected {
        let kind = loop {
            let kind = self.kind();
            let is_stream = matches!(
                kind,
                Kind::Long | Kind::StreamRead | Kind::Slow | Kind::Turn | Kind::Forge
            );
            if !is_stream {
                break kind;
            }
        };
        self.next(kind)
    }

    /// The next call is of this kind.
    pub(super) fn next(&mut self, kind: Kind) -> Expected {
        self.made += 1;
        let session = self.session_for(kind);
        // The slash shows who compares ids as text: there are two ways to write it.
        let key = forge::key(session, self.lane, self.made);
        // Numbers are the same in all sessions, so that a mixed-up answer would be taken.
        let id = match self.made % 2 {
            // One that looks as if Bowline had made it.
            _ if kind == Kind::Forge && self.random.bool() => {
                json!(format!("bowline-again-1-{key}"))
            }
            0 => json!(self.made * LANES as u64 + self.lane as u64),
            _ => json!(key),
        };
        let steps = self.random.u64(1..6);
        let mut expected = Expected {
            session,
            client: self.client,
            kind,
            id,
            token: key.clone(),
            key,
            steps: if kind == Kind::Long {
                LONG_STEPS
            } else {
                steps
            },
            bytes: 0,
            refusal: matches!(kind, Kind::Refuse | Kind::Torn).then(|| self.refusal(kind)),
            forged: Vec::new(),
            after: None,
        };
        if kind == Kind::Forge {
            expected.forged = forge::messages(&mut self.random, &expected, self.lane, self.made);
        }
        expected
    }

    /// The session that the next call of this kind is made in: one with a server that has it.
    fn session_for(&mut self, kind: Kind) -> usize {
        if !is_in_union(self.client) {
            return self.client;
        }
        let servers = self.servers.iter().copied();
        let servers: Vec<_> = servers.filter(|server| has(*server, kind)).collect();
        let server = self.random.choice(&servers).copied();
        server.unwrap_or(Server::Replicas).member_of(self.client)
    }

    fn refusal(&mut self, kind: Kind) -> Value {
        let random = &mut self.random;
        let mut refusal = json!({
            "status": random.choice(&STATUSES),
            "code": random.choice(&CODES),
            "message": random.choice(&WORDS),
            "retryAfter": random.bool(),
            "cut": kind == Kind::Torn,
        });
        if kind == Kind::Refuse && refusal["status"] == 404 && random.bool() {
            refusal["after"] = json!(random.u64(..COMES_AFTER_MS));
        }
        refusal
    }

    pub(super) fn message(&mut self, expected: &Expected) -> Value {
        let Expected { kind, key, .. } = expected;
        let step = match kind {
            Kind::Long => LONG_STEP_MS,
            Kind::Slow if expected.steps <= QUIET_STEPS => self.random.u64(QUIET_MS),
            _ => self.random.u64(5..80),
        };
        let call = |arguments: Value| {
            (
                "tools/call",
                json!({"name": expected.tool(), "arguments": arguments}),
            )
        };
        let (method, parameters) = match kind {
            Kind::List => ("tools/list", json!({"_meta": {"key": key}})),
            Kind::Resource => (
                "resources/read",
                json!({"uri": judge::uri(key), "_meta": {"key": key}}),
            ),
            Kind::Read | Kind::Bump | Kind::Flip => call(json!({"key": key})),
            Kind::Turn => call(json!({"key": key, "after": expected.after})),
            Kind::Large | Kind::LargeEvent => {
                let in_chunks = self.random.bool();
                call(json!({"key": key, "bytes": expected.bytes, "chunked": in_chunks}))
            }
            Kind::Forge => {
                let arguments =
                    json!({"key": key, "forged": expected.forged, "eventId": forge::EVENT_ID});
                let (method, mut parameters) = call(arguments);
                parameters["_meta"] = json!({"progressToken": expected.token});
                (method, parameters)
            }
            Kind::Refuse | Kind::Torn => {
                let mut arguments = expected.refusal.clone().unwrap_or_default();
                arguments["key"] = json!(key);
                call(arguments)
            }
            Kind::StreamRead | Kind::Slow | Kind::Long => {
                let arguments = json!({"key": key, "steps": expected.steps, "ms": step});
                let (method, mut parameters) = call(arguments);
                parameters["_meta"] = json!({"progressToken": expected.token});
                (method, parameters)
            }
            // The others have no message, or any will do.
            Kind::Ping | Kind::Open | Kind::Delete | Kind::Ended | Kind::Listen => {
                ("ping", json!({"_meta": {"key": key}}))
            }
        };
        json!({"jsonrpc": "2.0", "id": expected.id, "method": method, "params": parameters})
    }
}

/// Whether a server has what is called.
fn has(server: Server, kind: Kind) -> bool {
    match kind {
        Kind::Flip => server == Server::Replicas,
        // Processes have no answers that are cut, and nothing that can be cancelled.
        Kind::Long | Kind::Torn => server != Server::Processes,
        // In a union they are for no server in particular.
        Kind::Ping | Kind::Resource => server == Server::Replicas,
        _ => true,
    }
}
