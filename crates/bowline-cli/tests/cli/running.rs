//! A `bowline serve` that runs beside a test, and a shell for what it tells people to paste.
//!
//! Nothing here waits for time to pass: threads turn lines and the exit into events, and only a
//! test that would hang meets the timeout.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The program under test, in an environment that does not change what it prints.
pub(crate) fn bowline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    for variable in [
        "RUST_LOG",
        "CLICOLOR_FORCE",
        "NO_COLOR",
        "COLUMNS",
        "BOWLINE_SEAL_KEYS",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The exit code, stdout and stderr of a call that ends by itself.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A running gateway on a free port; it is killed when the test is done with it.
pub(crate) struct Running {
    pid: u32,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
    exit: Receiver<ExitStatus>,
    is_over: bool,
}

/// The lines of a stream; it is closed, after its next line, when this is dropped.
pub(crate) struct Lines(Receiver<String>);

// === impl Running ===

impl Running {
    /// Starts it with these options.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_in(&mut bowline(), "127.0.0.1:0", options)
    }

    /// Starts it by this command, which brings its environment, and on this address.
    pub(crate) fn start_in(command: &mut Command, listen: &str, options: &[&str]) -> Self {
        command.args(["serve", "--listen", listen]).args(options);
        Self::spawn(command.stdout(Stdio::piped()))
    }

    /// Starts it with a stdout that nobody reads, and a log that tells everything.
    pub(crate) fn start_unread(options: &[&str]) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = bowline();
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options);
        Self::spawn(command.stdout(writer).env("RUST_LOG", "debug"))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let stdout = child.stdout.take().map_or_else(Lines::none, Lines::of);
        let stderr = child.stderr.take().map_or_else(Lines::none, Lines::of);
        let (ended, exit) = mpsc::channel();
        thread::spawn(move || ended.send(child.wait().unwrap()));
        Self {
            pid,
            stdout,
            stderr,
            exit,
            is_over: false,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        kill(self.pid, name);
    }

    /// Waits for the end, and says with which code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let status = self.exit.recv_timeout(TIMEOUT).unwrap();
        self.is_over = true;
        status.code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over && self.exit.try_recv().is_err() {
            kill(self.pid, "KILL");
        }
    }
}

// === impl Lines ===

impl Lines {
    pub(crate) fn none() -> Self {
        Self(mpsc::channel().1)
    }

    fn of(stream: impl Read + Send + 'static) -> Self {
        let (found, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                if found.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// Everything up to and with the first line that has this in it.
    pub(crate) fn read_until(&self, marker: &str) -> String {
        let mut read = String::new();
        loop {
            match self.0.recv_timeout(TIMEOUT) {
                Ok(line) => read += &line,
                Err(error) => panic!("no line with {marker:?} ({error}):\n{read}"),
            }
            let last = read.lines().last();
            if last.is_some_and(|line| line.contains(marker)) {
                return read;
            }
        }
    }

    /// Everything from here to the end of the stream.
    pub(crate) fn read_rest(&self) -> String {
        let mut read = String::new();
        loop {
            match self.0.recv_timeout(TIMEOUT) {
                Ok(line) => read += &line,
                Err(RecvTimeoutError::Disconnected) => return read,
                Err(RecvTimeoutError::Timeout) => panic!("the stream does not end:\n{read}"),
            }
        }
    }
}

pub(crate) fn kill(pid: u32, name: &str) {
    let text = pid.to_string();
    let status = Command::new("kill").args(["-s", name, &text]).status();
    assert!(status.unwrap().success());
    // One of its threads may still serve a request meanwhile.
    while name == "STOP" && !is_stopped(pid) {
        thread::yield_now();
    }
}

/// Whether each of its threads is stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut stats =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
    stats.all(|stat| {
        let stat = stat.unwrap();
        let state = stat.rsplit(") ").next().unwrap();
        state.starts_with('T')
    })
}

/// The first word that ends in this.
pub(crate) fn word_ending_in(text: &str, end: &str) -> String {
    let mut words = text.split_whitespace();
    words.find(|word| word.ends_with(end)).unwrap().to_owned()
}

/// The indented blocks behind the first empty line: what people paste.
pub(crate) fn blocks(text: &str) -> Vec<String> {
    text.split("\n\n")
        .skip(1)
        .filter(|block| block.starts_with("  "))
        .map(str::to_owned)
        .collect()
}

/// What a POSIX shell prints when this is pasted into it.
pub(crate) fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}
