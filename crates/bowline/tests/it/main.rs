//! Bowline's promises, each tried from outside: real sockets, a file a promise.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod accounts;
mod across;
mod across_drain;
mod across_scenarios;
mod answer_ids;
mod arrays;
mod asked_identity;
mod asking;
mod batches;
mod callback_route;
mod callers;
mod certificates;
mod client;
mod cookies;
mod cross_origin;
mod crowds;
mod deadlines;
mod delivery;
mod departures;
mod draining;
mod embedder;
mod faults;
mod fingerprints;
mod full_disk;
mod guarded;
mod hanging;
mod hostile_store;
mod ids;
mod imitations;
mod keep_alive;
mod kept;
mod key_files;
mod large_answers;
mod lifetime;
mod limits;
mod listings;
mod log;
mod loops;
mod modern_clients;
mod oauth_attacks;
mod oauth_clients;
mod oauth_issuers;
mod oauth_scopes;
mod oauth_stage;
mod odd_answers;
mod opening;
mod operations;
mod pages;
mod recovery;
mod recovery_accepted;
mod recovery_balancer;
mod recovery_carried;
mod recovery_leftovers;
mod recovery_restore;
mod recovery_scenarios;
mod recovery_table;
mod redirects;
mod refusals;
mod repeats;
mod replicas;
mod restored_store;
mod rotation;
mod server_requests;
mod session_limit;
mod shared_store;
mod shown_elsewhere;
mod sign_in_waits;
mod stage;
mod sticky;
mod store_away;
mod store_metrics;
mod storms;
mod streams;
mod unopened;
mod verbatim;
