//! Every scenario on every pair of transports: what a client sees does not depend on how it is connected, nor on
//! how its server is; with and without a loss of the server's session in the middle.
//!
//! A test is named `matrix::FRONT_to_UPSTREAM_in_STORE::SCENARIO::undisturbed` (or `killed`); `spread` is three gateways
//! with peers on one Redis, behind a load balancer that gives each request to the next one. A bridge keeps its session in
//! memory; with another store, a client on stdio has a bridge that connects to gateways which have that. Another transport is a variant of `Front` or `Upstream`, and a line
//! in `pairs!`.

mod scenarios;
mod stage;

use self::scenarios as play;
use self::stage::{Pair, Stage};

/// The tests of one pair.
macro_rules! pair {
    ($pair:ident, $($scenario:ident)*) => {
        mod $pair {
            $(mod $scenario {
                use super::super::{Pair, Stage, play};

                #[tokio::test]
                async fn undisturbed() {
                    play::$scenario(Stage::set(Pair::$pair(), false).await).await;
                }

                #[tokio::test]
                async fn killed() {
                    play::$scenario(Stage::set(Pair::$pair(), true).await).await;
                }
            })*
        }
    };
}

/// The tests of all pairs.
macro_rules! pairs {
    ($($scenario:ident)*) => {
        pair!(http_to_http_in_memory, $($scenario)*);
        pair!(http_to_sse_in_memory, $($scenario)*);
        pair!(http_to_stdio_in_memory, $($scenario)*);
        pair!(sse_to_http_in_memory, $($scenario)*);
        pair!(sse_to_sse_in_memory, $($scenario)*);
        pair!(sse_to_stdio_in_memory, $($scenario)*);
        pair!(stdio_to_http_in_memory, $($scenario)*);
        pair!(stdio_to_sse_in_memory, $($scenario)*);
        pair!(stdio_to_stdio_in_memory, $($scenario)*);
        pair!(http_to_http_in_file, $($scenario)*);
        pair!(http_to_stdio_in_file, $($scenario)*);
        pair!(http_to_sse_in_file, $($scenario)*);
        pair!(sse_to_http_in_file, $($scenario)*);
        pair!(sse_to_sse_in_file, $($scenario)*);
        pair!(stdio_to_stdio_in_file, $($scenario)*);
        pair!(stdio_to_stdio_in_redis, $($scenario)*);
        pair!(stdio_to_stdio_spread, $($scenario)*);
        pair!(http_to_http_in_redis, $($scenario)*);
        pair!(http_to_stdio_in_redis, $($scenario)*);
        pair!(sse_to_sse_in_redis, $($scenario)*);
        pair!(http_to_http_spread, $($scenario)*);
        pair!(http_to_stdio_spread, $($scenario)*);
        pair!(http_to_sse_spread, $($scenario)*);
        pair!(sse_to_sse_spread, $($scenario)*);
        pair!(sse_to_stdio_spread, $($scenario)*);
    };
}

pairs! {
    opens
    lists
    calls
    calls_safely
    progresses
    cancels
    samples
    elicits
    subscribes
    passes_large_results
    streams_large_results
    keeps_every_character
    ends
}
