//! `bowline supervise`, which gateways start for their children.

use bowline_children::{Exit, GRACE, Spawn, Supervisor, SupervisorCommand};

const CHILDREN: usize = 50;

#[tokio::test]
async fn the_command_is_a_supervisor_of_little_memory() {
    let program = env!("CARGO_BIN_EXE_bowline");
    let supervisor = Supervisor::new(SupervisorCommand::new(program).args(["supervise"]));
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        let argv = vec!["cat".into()];
        let spawn = Spawn {
            argv,
            ..Spawn::default()
        };
        children.push(supervisor.spawn(spawn).await.unwrap());
    }
    let pid = supervisor.pid().await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kibibytes = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    };
    // The rest of what is resident is the program itself, which the gateway has in memory anyway.
    let (all, own) = (kibibytes("VmRSS:"), kibibytes("RssAnon:"));
    println!("with {CHILDREN} children: {all} KiB resident, {own} KiB of its own");
    assert!(own < 4 << 10, "{own} KiB");
    for child in children {
        assert_eq!(child.end(GRACE).await, Exit::Code(0));
    }
    supervisor.stop().await;
}

#[test]
fn a_person_cannot_start_one() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bowline"));
    let output = command
        .arg("supervise")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("only a gateway can start this"), "{text}");
}
