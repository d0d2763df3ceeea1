//! Gateways and supervisors that die.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use bowline_children::{Exit, GRACE, Spawn};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::kit::{Output, SOON, gone, python, runs, sh, supervisor};

/// Children that do not exit by themselves, each of which prints the id of the process that has to end.
const STUBBORN: [&str; 4] = [
    "echo $$; exec sleep 1000",
    "trap '' TERM; echo $$; sleep 1000; sleep 1000",
    "(setsid sh -c 'echo $$; exec sleep 1000' &); exec sleep 1000",
    "(env -i setsid sh -c 'trap \"\" TERM; echo $$; sleep 1000; sleep 1000' &); exec sleep 1000",
];

/// Not a test: the gateway of [`none_survives_a_gateway_that_is_killed`], and one inside of a child.
#[tokio::test]
#[ignore = "started by other tests"]
async fn gateway() {
    let supervisor = supervisor();
    let mut children = Vec::new();
    for script in STUBBORN {
        let mut child = supervisor.spawn(sh(script)).await.unwrap();
        println!("pid {}", Output::of(&mut child).pid().await);
        children.push(child);
    }
    println!("pid {}", supervisor.pid().await.unwrap());
    std::future::pending::<()>().await;
}

fn gateway_arguments() -> [&'static str; 5] {
    [
        "--ignored",
        "--exact",
        "dying::gateway",
        "--nocapture",
        "--quiet",
    ]
}

/// A gateway in a process of its own; the processes that have to end, and its supervisor.
fn started_gateway() -> (Child, Vec<i32>) {
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(gateway_arguments())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(gateway.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap);
    let pids = lines.filter_map(|line| line.split_once("pid ")?.1.parse().ok());
    let pids: Vec<i32> = pids.take(STUBBORN.len() + 1).collect();
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    (gateway, pids)
}

#[tokio::test]
async fn none_survives_a_gateway_that_is_killed() {
    let (mut gateway, pids) = started_gateway();
    gateway.kill().unwrap();
    assert_eq!(gateway.wait().unwrap().signal(), Some(9));
    for pid in pids {
        gone(pid).await;
    }
}

/// A gateway that was stopped ends nothing that its supervisor left.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_child_survives_gateway_and_supervisor_that_are_killed_at_once() {
    let (mut gateway, pids) = started_gateway();
    let (supervisor, children) = pids.split_last().unwrap();
    let of_gateway = Pid::from_child(&gateway);
    kill_process(of_gateway, Signal::STOP).unwrap();
    kill_process(Pid::from_raw(*supervisor).unwrap(), Signal::KILL).unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    for child in &children[..2] {
        gone(*child).await;
    }
    // Their descendants may be left.
    for child in children {
        kill_process_group(Pid::from_raw(*child).unwrap(), Signal::KILL).ok();
    }
}

/// A gateway in a child has a supervisor of its own, which tags its children.
#[tokio::test]
async fn none_survives_a_child_that_is_a_gateway() {
    for kill_first in [false, true] {
        let supervisor = supervisor();
        let program = std::env::current_exe().unwrap().into();
        let arguments = gateway_arguments().into_iter().map(Into::into);
        let argv = std::iter::once(program).chain(arguments).collect();
        let mut child = supervisor.spawn(Spawn { argv, ..sh("") }).await.unwrap();
        let mut output = Output::of(&mut child);
        let mut pids: Vec<i32> = Vec::new();
        while pids.len() <= STUBBORN.len() {
            let line = output.any_line().await;
            pids.extend(
                line.split_once("pid ")
                    .map(|(_, pid)| pid.parse::<i32>().unwrap()),
            );
        }
        if kill_first {
            // Then the children of the inner supervisor become the outer one's.
            let inner = Pid::from_raw(*pids.last().unwrap()).unwrap();
            kill_process(inner, Signal::KILL).unwrap();
        }
        child.end(SOON).await;
        supervisor.stop().await;
        assert!(!pids.iter().any(|pid| runs(*pid)), "{kill_first} {pids:?}");
    }
}

#[tokio::test]
async fn children_of_a_supervisor_that_is_killed_are_killed() {
    let supervisor = supervisor();
    let mut children = Vec::new();
    let mut pids = Vec::new();
    for script in &STUBBORN[..3] {
        let mut child = supervisor.spawn(sh(script)).await.unwrap();
        pids.push(Output::of(&mut child).pid().await);
        pids.push(child.pid());
        children.push(child);
    }
    let first = supervisor.pid().await.unwrap();
    let pid = Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    for child in children {
        assert_eq!(child.exited().await, Exit::Unknown);
        assert_eq!(child.end(GRACE).await, Exit::Unknown);
    }
    assert!(!pids.iter().any(|pid| runs(*pid)), "{pids:?}");
    // The next child has a new supervisor.
    let child = supervisor.spawn(sh("cat")).await.unwrap();
    assert_ne!(supervisor.pid().await, Some(first));
    assert_eq!(child.end(GRACE).await, Exit::Code(0));
}

/// Whatever the gateway has noticed of it by then.
#[tokio::test]
async fn a_child_can_be_started_while_the_supervisor_dies() {
    let supervisor = supervisor();
    supervisor.spawn(sh("cat")).await.unwrap().end(GRACE).await;
    for signal in [Signal::KILL, Signal::TERM].repeat(5) {
        let pid = i32::try_from(supervisor.pid().await.unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let child = supervisor.spawn(sh("cat")).await.unwrap();
        let exit = child.end(GRACE).await;
        assert!(matches!(exit, Exit::Code(0) | Exit::Unknown), "{exit}");
        while supervisor.pid().await == Some(pid.unsigned_abs()) {
            tokio::task::yield_now().await;
        }
        supervisor.spawn(sh("cat")).await.unwrap().end(GRACE).await;
    }
}

/// As a service manager does that signals every process of a service.
#[tokio::test]
async fn a_supervisor_that_gets_sigterm_ends_its_children() {
    let supervisor = supervisor();
    let child = supervisor.spawn(sh("read line; exit 6")).await.unwrap();
    let mut stubborn = supervisor.spawn(sh(STUBBORN[1])).await.unwrap();
    Output::of(&mut stubborn).pid().await;
    let pid = i32::try_from(supervisor.pid().await.unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.exited().await, Exit::Signal(15));
    assert_eq!(stubborn.exited().await, Exit::Signal(9));
    gone(pid).await;
    assert_eq!(
        supervisor.spawn(sh("cat")).await.unwrap().end(GRACE).await,
        Exit::Code(0)
    );
}

/// Without tag, group and parent nobody can say whose it is, but it is older than every child that is left.
#[tokio::test]
async fn a_descendant_that_left_everything_ends_with_the_last_child_that_may_be_its_own() {
    let supervisor = supervisor();
    let script = "(env -i setsid sh -c 'echo $$; exec sleep 1000' &); cat";
    let mut first = supervisor.spawn(sh(script)).await.unwrap();
    let descendant = Output::of(&mut first).pid().await;
    let second = supervisor.spawn(python("input()")).await.unwrap();
    assert_eq!(first.end(SOON).await, Exit::Code(0));
    second.end(SOON).await;
    gone(descendant).await;
}

#[tokio::test]
async fn a_supervisor_that_nobody_needs_any_more_exits() {
    let supervisor = supervisor();
    let child = supervisor.spawn(sh("cat")).await.unwrap();
    let pid = i32::try_from(supervisor.pid().await.unwrap()).unwrap();
    drop(supervisor);
    assert!(runs(pid) && runs(child.pid()));
    assert_eq!(child.end(GRACE).await, Exit::Code(0));
    gone(pid).await;
}
