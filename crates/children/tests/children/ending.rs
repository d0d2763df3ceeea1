//! Children that do not want to end.

use std::time::Duration;

use bowline_children::{Exit, GRACE};

use crate::kit::{Output, SOON, gone, python, runs, sh, supervisor};

#[tokio::test]
async fn a_child_that_reads_exits_when_stdin_closes() {
    let supervisor = supervisor();
    let child = supervisor.spawn(sh("cat; exit 5")).await.unwrap();
    assert_eq!(child.end(Duration::from_secs(60)).await, Exit::Code(5));
}

#[tokio::test]
async fn a_child_that_does_not_read_gets_sigterm_and_one_that_ignores_it_sigkill() {
    let supervisor = supervisor();
    let child = supervisor.spawn(sh("exec sleep 1000")).await.unwrap();
    assert_eq!(child.end(SOON).await, Exit::Signal(15));
    let mut child = supervisor
        .spawn(sh("trap '' TERM; echo ready; sleep 1000; sleep 1000"))
        .await
        .unwrap();
    assert_eq!(Output::of(&mut child).line().await.unwrap(), "ready");
    assert_eq!(child.end(SOON).await, Exit::Signal(9));
}

/// In the group, in a session of its own, and with a parent that exited at once.
#[tokio::test]
async fn descendants_are_ended_wherever_they_went() {
    let supervisor = supervisor();
    let bystander = supervisor.spawn(sh("cat")).await.unwrap();
    for script in [
        "sleep 1000 & echo $!; cat",
        "setsid sh -c 'echo $$; exec sleep 1000' & cat",
        "(setsid sh -c 'echo $$; exec sleep 1000' &) ; cat",
        "setsid sh -c 'trap \"\" TERM; echo $$; sleep 1000; sleep 1000' & cat",
        // The child exits first.
        "(setsid sh -c 'echo $$; exec sleep 1000' &)",
    ] {
        let mut child = supervisor.spawn(sh(script)).await.unwrap();
        let descendant = Output::of(&mut child).pid().await;
        assert!(runs(descendant));
        assert_eq!(child.end(SOON).await, Exit::Code(0), "{script}");
        assert!(!runs(descendant), "{script}");
    }
    assert!(runs(bystander.pid()));
    assert_eq!(bystander.end(GRACE).await, Exit::Code(0));
}

/// It forks and exits all the time, so that it is never where it was seen last.
#[tokio::test]
async fn a_child_that_keeps_forking_is_ended() {
    let script = "
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
";
    let supervisor = supervisor();
    let mut child = supervisor.spawn(python(script)).await.unwrap();
    Output::of(&mut child).pid().await;
    child.end(SOON).await;
    supervisor.stop().await;
}

#[tokio::test]
async fn a_child_that_closed_stdout_is_still_a_child() {
    let supervisor = supervisor();
    let mut child = supervisor
        .spawn(sh("echo last; exec >&-; read line; exit 4"))
        .await
        .unwrap();
    let mut output = Output::of(&mut child);
    assert_eq!(output.line().await.unwrap(), "last");
    assert_eq!(output.line().await, None);
    assert!(runs(child.pid()));
    assert_eq!(child.end(GRACE).await, Exit::Code(4));
}

#[tokio::test]
async fn a_dropped_child_ends_in_the_background() {
    let supervisor = supervisor();
    let mut child = supervisor
        .spawn(sh("(setsid sh -c 'echo $$; exec sleep 1000' &); cat"))
        .await
        .unwrap();
    let descendant = Output::of(&mut child).pid().await;
    let pid = child.pid();
    drop(child);
    gone(pid).await;
    gone(descendant).await;
}

/// Whether or not the child runs already when nobody waits for it any more.
#[tokio::test]
async fn a_spawn_that_is_given_up_leaves_no_child() {
    let supervisor = supervisor();
    let first = supervisor.spawn(sh("cat")).await.unwrap();
    for _ in 0..20 {
        let spawn = supervisor.spawn(sh("exec sleep 1000"));
        tokio::select! {
            biased;
            child = spawn => drop(child),
            () = tokio::task::yield_now() => {}
        }
    }
    supervisor.stop().await;
    assert!(!runs(first.pid()));
}
