//! What a child is started with, and why it is not.

use std::os::unix::fs::PermissionsExt as _;

use bowline_children::{Exit, GRACE, Spawn, SpawnError, Supervisor, SupervisorCommand, TAG};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::{Output, python, runs, sh, supervisor};

#[tokio::test]
async fn a_child_reads_writes_and_exits() {
    let supervisor = supervisor();
    assert_eq!(supervisor.pid().await, None);
    let mut child = supervisor
        .spawn(sh("read line; echo \"got $line\"; exit 3"))
        .await
        .unwrap();
    assert!(supervisor.pid().await.is_some());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    assert_eq!(Output::of(&mut child).line().await.unwrap(), "got hello");
    assert_eq!(child.exited().await, Exit::Code(3));
    assert_eq!(child.end(GRACE).await, Exit::Code(3));
    supervisor.stop().await;
    let refused = supervisor.spawn(sh("true")).await;
    assert!(matches!(refused, Err(SpawnError::Stopped)));
}

/// The environment is exactly what was given; no descriptor, group or terminal is inherited.
#[tokio::test]
async fn a_child_inherits_nothing() {
    let script = "
import os
print(sorted(os.environ))
print(os.getcwd())
print(len(os.listdir('/proc/self/fd')))
print(os.getpgid(0) == os.getpid())
try:
    open('/dev/tty')
except OSError:
    print('no terminal')
";
    let spawn = Spawn {
        env: vec![
            ("PATH".into(), "/usr/bin:/bin:/usr/local/bin".into()),
            ("LC_ALL".into(), "C".into()),
        ],
        cwd: Some("/".into()),
        ..python(script)
    };
    let supervisor = supervisor();
    let mut child = supervisor.spawn(spawn).await.unwrap();
    let mut output = Output::of(&mut child);
    assert_eq!(
        output.line().await.unwrap(),
        format!("['{TAG}', 'LC_ALL', 'PATH']")
    );
    assert_eq!(output.line().await.unwrap(), "/");
    // One more is the listing's own.
    let expected = inherited_descriptors() + 1;
    assert_eq!(output.line().await.unwrap(), expected.to_string());
    assert_eq!(output.line().await.unwrap(), "True");
    assert_eq!(output.line().await.unwrap(), "no terminal");
    assert_eq!(child.end(GRACE).await, Exit::Code(0));
}

/// Not even if the gateway was started with `nohup`.
#[tokio::test]
async fn nothing_of_the_gateways_environment_reaches_the_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("environ");
    // What this shell was started with; it becomes the supervisor.
    let telling = "cat /proc/$$/environ >\"$1\"; exec \"$0\"";
    let supervise = env!("CARGO_BIN_EXE_bowline-supervise");
    let command = SupervisorCommand::new("/bin/sh");
    let command = command.args(["-c", telling, supervise, copy.to_str().unwrap()]);
    let supervisor = Supervisor::new(command);
    let child = supervisor.spawn(sh("exit 0")).await.unwrap();
    assert_eq!(child.exited().await, Exit::Code(0));
    let environment = std::fs::read(copy).unwrap();
    let variables = environment.split(|byte| *byte == 0);
    let is_other = |name: &&[u8]| !name.is_empty() && !name.starts_with(TAG.as_bytes());
    assert_eq!(variables.filter(is_other).count(), 0);
    assert!(
        std::env::vars_os().next().is_some(),
        "this process has none, either"
    );
    supervisor.stop().await;
}

#[tokio::test]
async fn a_child_ignores_and_blocks_no_signal() {
    let ignoring = "trap '' HUP INT USR1 ALRM; exec \"$0\"";
    let supervise = env!("CARGO_BIN_EXE_bowline-supervise");
    let command = SupervisorCommand::new("/bin/sh").args(["-c", ignoring, supervise]);
    let supervisor = Supervisor::new(command);
    let mut child = supervisor
        .spawn(sh("grep -E 'SigIgn|SigBlk' /proc/self/status"))
        .await
        .unwrap();
    let mut output = Output::of(&mut child);
    while let Some(line) = output.line().await {
        // Signals 32 and above are the C library's own.
        let signals = u64::from_str_radix(&line["SigBlk:\t".len()..], 16).unwrap();
        assert_eq!(signals & 0x7fff_ffff, 0, "{line}");
    }
}

/// The three that every process has, and those of whoever started this test.
fn inherited_descriptors() -> usize {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let is_inherited = |info: &String| {
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        u32::from_str_radix(flags.trim(), 8).unwrap() & CLOSE_ON_EXEC == 0
    };
    let entries = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    infos.filter(is_inherited).count()
}

#[tokio::test]
async fn errors_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Spawn {
            argv: vec![path.into()],
            ..Spawn::default()
        }
    };
    let supervisor = supervisor();
    let spawn = async |spawn: Spawn| supervisor.spawn(spawn).await.unwrap_err();
    let named = |name: &str| Spawn {
        argv: vec![name.into()],
        ..sh("")
    };
    for missing in [
        named("no-such-program"),
        named("/no/such/program"),
        named(""),
        Spawn::default(),
    ] {
        let error = spawn(missing).await;
        assert!(matches!(error, SpawnError::NotFound(_)), "{error}");
    }
    for refused in [
        file("plain", "", 0o600),
        file("nonsense", "nonsense", 0o700),
        file("interpreter", "#!/no/such/interpreter\n", 0o700),
        named("/tmp"),
    ] {
        let error = spawn(refused).await;
        assert!(matches!(error, SpawnError::NotExecutable(..)), "{error}");
    }
    for cwd in ["/no/such/directory", "/etc/passwd"] {
        let error = spawn(Spawn {
            cwd: Some(cwd.into()),
            ..sh("true")
        })
        .await;
        assert!(matches!(error, SpawnError::BadDirectory(..)), "{error}");
    }
    let long = "x".repeat(200 << 10);
    for length in [1, 30] {
        let error = spawn(Spawn {
            argv: vec![long.clone().into(); length + 1],
            ..sh("")
        })
        .await;
        assert!(!matches!(error, SpawnError::SupervisorGone), "{error}");
    }
    let error = spawn(Spawn {
        argv: vec!["sh".into(), "a\0b".into()],
        ..sh("")
    })
    .await;
    assert!(matches!(error, SpawnError::Refused(..)), "{error}");
    // It still works.
    assert_eq!(
        supervisor.spawn(sh("true")).await.unwrap().exited().await,
        Exit::Code(0)
    );
}

/// A relative program starts in the working directory, and one without a slash is searched in the child's PATH.
#[tokio::test]
async fn programs_are_found_as_a_shell_does() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho \"$0 $1\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let cwd = Some(directory.path().to_owned());
    let supervisor = supervisor();
    let relative = Spawn {
        argv: vec!["./program".into(), "1".into()],
        env: Vec::new(),
        cwd,
    };
    let env = vec![(
        "PATH".into(),
        format!("/nowhere:{}", directory.path().display()).into(),
    )];
    let searched = Spawn {
        argv: vec!["program".into(), "1".into()],
        env,
        cwd: None,
    };
    for spawn in [relative, searched] {
        let mut child = supervisor.spawn(spawn).await.unwrap();
        let line = Output::of(&mut child).line().await.unwrap();
        assert!(line.ends_with("/program 1"), "{line}");
    }
}

#[tokio::test]
async fn arguments_of_a_mebibyte_arrive() {
    let long = "x".repeat(100 << 10);
    let mut spawn = sh("for word; do printf %s \"$word\"; done | wc -c");
    spawn.argv.push("sh".into());
    spawn.argv.extend(vec![long.into(); 10]);
    let supervisor = supervisor();
    let mut child = supervisor.spawn(spawn).await.unwrap();
    assert_eq!(
        Output::of(&mut child).line().await.unwrap().trim(),
        "1024000"
    );
}

/// Not a test: the supervisor of the next one.
#[test]
#[ignore = "started by another test"]
fn own_supervisor() {
    bowline_children::supervise().unwrap();
}

/// As the tests of other crates do it, which cannot know where a supervisor program is.
#[tokio::test]
async fn a_test_program_can_be_its_own_supervisor() {
    let arguments = [
        "--exact",
        "spawning::own_supervisor",
        "--ignored",
        "--nocapture",
    ];
    let program = std::env::current_exe().unwrap();
    let supervisor = Supervisor::new(SupervisorCommand::new(program).args(arguments));
    let script = "(setsid sh -c 'echo $$; exec sleep 1000' &); cat";
    let mut child = supervisor.spawn(sh(script)).await.unwrap();
    let descendant = Output::of(&mut child).pid().await;
    assert_eq!(child.end(GRACE).await, Exit::Code(0));
    assert!(!runs(descendant));
    supervisor.stop().await;
}

#[tokio::test]
async fn a_program_that_is_no_supervisor_is_refused() {
    for command in [
        SupervisorCommand::new("/no/such/program"),
        SupervisorCommand::new("/bin/true"),
        SupervisorCommand::new("/bin/sh").args(["-c", "echo nonsense"]),
    ] {
        let supervisor = Supervisor::new(command);
        let error = supervisor.spawn(sh("true")).await.unwrap_err();
        assert!(matches!(error, SpawnError::NoSupervisor(_)), "{error}");
    }
    // And a supervisor refuses what is no gateway.
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_bowline-supervise"))
        .stdin(std::process::Stdio::null())
        .status();
    assert!(!status.unwrap().success());
}

#[tokio::test]
async fn stderr_is_its_own_pipe() {
    let supervisor = supervisor();
    let mut child = supervisor
        .spawn(sh("echo out; echo err >&2"))
        .await
        .unwrap();
    let mut text = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .await
        .unwrap();
    assert_eq!(text, "err\n");
    assert_eq!(Output::of(&mut child).line().await.unwrap(), "out");
}
