//! Servers that are programs: this test program is all of them, and their supervisor.

use std::io::BufReader;
use std::path::Path;

use bowline::Gateway;
use bowline::config::{Command, Config, Server};
use bowline_testbed::stdio::{START, TALLY, serve};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Answer, Client};
use super::gateway::config;
use super::messages::list;
use super::wait::until;

/// Not tests: what this program does when a gateway starts it.
mod roles {
    use super::*;

    #[test]
    #[ignore = "the supervisor of the other tests' processes"]
    fn supervisor() {
        bowline_children::supervise().unwrap();
    }

    #[test]
    #[ignore = "the server of the other tests"]
    #[expect(clippy::disallowed_methods, reason = "a program of its own")]
    fn server() {
        let variable = |name| std::env::var(name).ok();
        // Where the test harness does not write.
        let out = std::fs::File::options().write(true).open("/dev/fd/3");
        serve(
            BufReader::new(std::io::stdin()),
            out.unwrap(),
            variable(TALLY).map(Into::into),
            &variable(START).unwrap_or_default(),
        );
    }
}

/// Runs a role of this program, and what it writes goes to descriptor 3.
const AS_SERVER: &str = r#"exec 3>&1 1>/dev/null; exec "$0" --exact kit::programs::roles::server --ignored --nocapture"#;

fn this_program() -> String {
    let path = std::env::current_exe().unwrap();
    path.to_str().unwrap().to_owned()
}

/// The command of the server, which writes down what it does here.
pub(crate) fn command(tally: &Path) -> Command {
    let words = ["-c", AS_SERVER, &this_program()].map(str::to_owned);
    let mut command = Command::new("/bin/sh", words.into());
    let tally = tally.to_str().unwrap().to_owned();
    command.env.insert(TALLY.to_owned(), tally);
    command
}

/// A configuration whose only server `s` is a program.
pub(crate) fn config_of(command: Command) -> Config {
    let role = "kit::programs::roles::supervisor";
    let supervisor = ["--exact", role, "--ignored", "--nocapture"].map(str::to_owned);
    let mut config = config(&[]);
    let server = Server::from_command(command);
    config.servers.insert("s".parse().unwrap(), server);
    config.supervisor = [this_program()].into_iter().chain(supervisor).collect();
    config
}

/// A gateway before a server that is a program, and a client of it.
pub(crate) struct Play {
    pub(crate) gateway: Gateway,
    pub(crate) client: Client,
    pub(crate) tally: Tally,
}

/// What the servers of a test did, whichever process did it.
#[derive(Debug)]
pub(crate) struct Tally(TempDir);

// === impl Play ===

impl Play {
    /// A session that is open and ready, whose client knows the tools.
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    pub(crate) async fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut play = Self::start(change).await;
        assert_eq!(play.client.begin().await.status, 200);
        play.learn_tools().await;
        play
    }

    /// The client is shown the tools, which are forgotten whenever a process is replaced.
    pub(crate) async fn learn_tools(&self) {
        let mut second = list("page 2");
        second["params"] = json!({"cursor": "second"});
        for page in [list("page 1"), second] {
            assert_eq!(self.client.send(&page).await.status, 200);
        }
    }

    /// Nothing is open yet.
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let tally = Tally::default();
        let mut config = config_of(command(&tally.path()));
        change(&mut config);
        let gateway = Gateway::start(config).await.unwrap();
        let client = Client::new(&gateway);
        Self {
            gateway,
            client,
            tally,
        }
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> Answer {
        self.client.call(7, tool, arguments).await
    }

    /// The process that serves the session now.
    pub(crate) async fn pid(&self) -> u32 {
        let answer = self
            .client
            .call("pid", "peek", &json!({"key": "pid"}))
            .await;
        text_of(&answer).parse().unwrap()
    }
}

/// The text of a tool's result.
pub(crate) fn text_of(answer: &Answer) -> String {
    let message = answer.messages().pop().unwrap_or_default();
    let text = message["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no result: {answer:?}"))
        .to_owned()
}

// === impl Tally ===

impl Default for Tally {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Tally {
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.0.path().join("tally")
    }

    /// Lets tools go on that wait.
    pub(crate) fn go_on(&self) {
        std::fs::write(self.path().with_extension("go"), "").unwrap();
    }

    /// How often something was written down.
    pub(crate) fn count(&self, what: &str) -> usize {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().filter(|line| *line == what).count()
    }

    /// How many processes were started.
    pub(crate) fn starts(&self) -> usize {
        self.pids().len()
    }

    /// The processes that were started.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        let pids = text.lines().filter_map(|line| line.strip_prefix("start "));
        pids.map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits until something was written down so often.
    pub(crate) async fn until(&self, what: &str, times: usize) {
        until(what, || self.count(what) >= times).await;
    }
}

/// Kills a process, and waits until it is gone.
pub(crate) async fn kill(pid: u32) {
    signal(pid, "-KILL");
    until_gone(pid).await;
}

/// Sends a signal, such as `-STOP`.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([name, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits until a process is gone.
pub(crate) async fn until_gone(pid: u32) {
    let path = format!("/proc/{pid}");
    until("the process is gone", || !Path::new(&path).exists()).await;
}
