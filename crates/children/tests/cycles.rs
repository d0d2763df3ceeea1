//! A thousand children, opened and closed: nothing of them is left. Alone in its program, because it counts what
//! the whole process has.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what helpers meet fails the test"
)]

#[path = "children/kit.rs"]
mod kit;

use std::time::Duration;

use bowline_children::{Exit, GRACE, Supervisor};
use tokio::task::JoinSet;

use crate::kit::{Output, children_of, count, gone, resident, sh, supervisor};

const CYCLES: usize = 1_000;
const AT_ONCE: usize = 10;

/// What a process has.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    descriptors: usize,
    threads: usize,
    children: Vec<i32>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_children_leave_nothing_behind() {
    let supervisor = supervisor();
    // Starts the supervisor, and what the runtime starts once.
    cycle(&supervisor, 0).await;
    let process = i32::try_from(supervisor.pid().await.unwrap()).unwrap();
    settle(process).await;
    let before = (counted(std::process::id()), counted(process));
    let memory = resident(process);

    let mut running = JoinSet::new();
    for number in 0..CYCLES {
        if running.len() == AT_ONCE {
            running.join_next().await.unwrap().unwrap();
        }
        let supervisor = supervisor.clone();
        running.spawn(async move { cycle(&supervisor, number).await });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    settle(process).await;

    let after = (counted(std::process::id()), counted(process));
    assert_eq!(after, before);
    let grown = resident(process);
    println!(
        "the supervisor's resident memory: {memory} KiB at first, {grown} KiB after {CYCLES} children"
    );
    assert!(grown < 16 << 10, "{grown} KiB");
    supervisor.stop().await;
    gone(process).await;
}

/// Starts and ends a child, in one of the ways in which children end.
async fn cycle(supervisor: &Supervisor, number: usize) {
    let script = "(setsid sleep 1000 &) ; echo ready; read line";
    let mut child = supervisor.spawn(sh(script)).await.unwrap();
    let mut output = Output::of(&mut child);
    assert_eq!(output.line().await.unwrap(), "ready");
    match number % 3 {
        0 => drop(child),
        1 => assert_eq!(child.end(GRACE).await, Exit::Code(1)),
        _ => {
            drop(child.stdin.take());
            assert_eq!(child.exited().await, Exit::Code(1));
        }
    }
}

/// Waits until the children that were dropped are gone.
async fn settle(supervisor: i32) {
    while !children_of(supervisor).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn counted(process: impl std::fmt::Display) -> Counted {
    let pid: i32 = process.to_string().parse().unwrap();
    Counted {
        descriptors: count(format!("/proc/{pid}/fd")),
        threads: count(format!("/proc/{pid}/task")),
        children: children_of(pid),
    }
}
