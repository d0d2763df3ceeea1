//! The command line as typed; [`plan`](crate::plan) says what it means.

use std::path::PathBuf;
use std::time::Duration;

use bowline::config::{Flow, ListenAddress, ListenProblem, SignInHost, check_meta_prefix};
use clap::{Args, Parser, Subcommand, ValueEnum};

// By their paths, because other programs include this file by its own.
#[path = "args/demo.rs"]
pub(crate) mod demo;
#[path = "args/examples.rs"]
mod examples;

use self::demo::{DemoArguments, DemoPartArguments};
use self::examples::{
    CHECK_EXAMPLES, CONNECT_EXAMPLES, DEMO_EXAMPLES, EXAMPLES, HEALTH_EXAMPLES, KEYGEN_EXAMPLES,
    LOGIN_EXAMPLES, PROBE_EXAMPLES, SERVE_EXAMPLES,
};

/// A session-keeping gateway for MCP.
///
/// Bowline sits between MCP clients and MCP servers. A client's session keeps working when its server
/// restarts, moves or forgets it.
#[derive(Debug, Parser)]
#[command(name = "bowline", version, about, subcommand_required = true)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway
    ///
    /// Without servers it runs a small built-in demo server and prints what to try.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),

    /// See sessions break, and hold
    ///
    /// Two clients count, each in a session: one through Bowline, the other through a proxy that keeps nothing.
    /// Then the replica that has the session is killed, the gateway is killed and started again, and the load
    /// balancer's cookie is lost. Everything runs on this machine, in processes of this program. Ctrl-C stops it.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArguments),

    /// Check the configuration and print it with its defaults
    ///
    /// Takes the options of `serve`. Prints `ok` at the end, or all errors, with exit code 2.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(ConfigArguments),

    /// Connect an editor to a server: MCP on stdin and stdout
    ///
    /// For the `command` of an editor's MCP configuration. Keeps one session for as long as the editor
    /// runs it, while the server restarts, the network changes or the machine sleeps. The server is at a
    /// URL, or it is a command, which is started again when it crashes; or it is all servers of a
    /// configuration file, as one. If a server asks for a
    /// sign-in, the browser opens, and calls wait for it; every `connect` of this user shares it.
    #[command(after_help = CONNECT_EXAMPLES)]
    Connect(ConnectArguments),

    /// Examine a server: what it speaks, and what is wrong with it
    ///
    /// Opens sessions like a client, and ends them. Calls no tool. The exit code is 0 if Bowline works with
    /// the server, 1 if it does not, and 2 if the call or the configuration must change.
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(ProbeArguments),

    /// Ask a running gateway whether it is well
    ///
    /// For the health checks of containers and service managers. Prints the gateway's answer. The exit code is
    /// 0 if the gateway is well, and 1 if it is not or does not answer.
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArguments),

    /// Print the JSON Schema of the configuration file
    ///
    /// For editors: with the line `#:schema bowline.schema.json` in a TOML file, many of them complete
    /// and check its keys.
    Schema,

    /// Sign in at a server
    ///
    /// Opens the browser, prints the link, and waits for the sign-in. Gateways with the same store use
    /// the new token at once, without a restart.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login(SignInArguments),

    /// Sign out at a server
    ///
    /// Revokes the tokens at the authorization server, and deletes them.
    Logout(LogoutArguments),

    /// Print who is signed in at which server, and when tokens expire
    ///
    /// With a file, for its servers; without one, for every server that somebody is signed in at.
    Auth(AuthArguments),

    /// Print a new seal key
    ///
    /// Seal keys encrypt what is stored. Gateways that share a Redis need the same keys.
    #[command(after_help = KEYGEN_EXAMPLES)]
    Keygen,

    /// Be a part of `bowline demo`, which starts this by itself
    #[command(hide = true)]
    DemoPart(DemoPartArguments),

    /// Supervise the child processes of a gateway, which starts this by itself
    #[command(hide = true)]
    Supervise,
}

/// The options of `bowline serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArguments,

    /// The format of the logs: text for people, json for programs
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

/// The options of `bowline connect`.
#[derive(Debug, Args)]
pub(crate) struct ConnectArguments {
    /// The server, by its URL or by its name in the configuration file; without it, all servers of the file as one
    // Read by `named_server`, because clap shows bad values and a URL may hold a secret.
    #[arg(value_name = "URL|NAME")]
    pub(crate) server: Option<String>,

    /// Or the command of a server on stdio, which gets all of the environment
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["server", "headers"])]
    pub(crate) command: Vec<String>,

    /// Read the configuration from this file: TOML, or an editor's JSON with `mcpServers`
    ///
    /// [default for a NAME, or without a server: bowline/bowline.toml in $XDG_CONFIG_HOME or ~/.config]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Send this header with every request; may be repeated
    ///
    /// `${NAME}` stands for an environment variable. Other users of this machine can see the command
    /// line, but not the variable.
    // Read by `named_server`: a header may hold a secret.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// Append logs to this file instead of writing them to stderr
    ///
    /// Whether and where an editor keeps stderr is its own affair.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

/// The options of `bowline probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// The server, by its URL or by its name in the configuration file
    // Read by `named_server`, for the same reason.
    #[arg(value_name = "URL|NAME", conflicts_with = "command")]
    pub(crate) server: Option<String>,

    /// The command of a server that speaks over stdin and stdout, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,

    /// Read the configuration from this file: TOML, or an editor's JSON with `mcpServers`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Send this header with every request; may be repeated
    ///
    /// `${NAME}` stands for an environment variable. Other users of this machine can see the command
    /// line, but not the variable.
    // Read by `named_server`: a header may hold a secret.
    #[arg(
        long = "header",
        value_name = "NAME: VALUE",
        conflicts_with = "command"
    )]
    pub(crate) headers: Vec<String>,

    /// How long everything may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) timeout: Duration,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options of `bowline health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArguments {
    /// The admin listener of the gateway [default: `admin` of the file, or 127.0.0.1:6271]
    #[arg(value_name = "ADDR", value_parser = admin_address, conflicts_with = "config")]
    pub(crate) admin: Option<ListenAddress>,

    /// Read the address from this configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Ask whether clients should be sent to it, not only whether it runs
    #[arg(long)]
    pub(crate) ready: bool,

    /// How long the answer may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,
}

/// The options of `bowline logout`.
#[derive(Debug, Args)]
pub(crate) struct LogoutArguments {
    #[command(flatten)]
    pub(crate) sign_in: SignInArguments,

    /// The caller to sign out; it need not be in the configuration any more
    #[arg(long, value_name = "NAME")]
    pub(crate) caller: Option<String>,
}

/// The options of `bowline login` and `bowline logout`.
#[derive(Debug, Args)]
pub(crate) struct SignInArguments {
    /// The server, by its name in the configuration file or by its URL
    // Read by `sign_in`, because clap shows bad values and a URL may hold a secret.
    #[arg(value_name = "NAME|URL")]
    pub(crate) server: String,

    /// Read the configuration from this file
    ///
    /// [default for a NAME: bowline/bowline.toml in $XDG_CONFIG_HOME or ~/.config]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The options of `bowline auth`.
#[derive(Debug, Args)]
pub(crate) struct AuthArguments {
    /// Read the configuration from this file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text per event
    #[default]
    Text,
    /// A JSON object per event
    Json,
}

/// What the configuration is made of. What is given here wins over the file.
#[derive(Debug, Default, Args)]
pub(crate) struct ConfigArguments {
    /// Read the configuration from this file: TOML, or an editor's JSON with `mcpServers`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Serve MCP clients here, or on a Unix socket (`unix:PATH`) [default: 127.0.0.1:6270]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) listen: Option<ListenAddress>,

    /// Serve health, metrics and the API here; `off` serves them nowhere [default: 127.0.0.1:6271]
    #[arg(long, value_name = "ADDR|off", value_parser = admin)]
    pub(crate) admin: Option<Admin>,

    /// Add an MCP server, or replace the file's server of that name; may be repeated
    ///
    /// Several URLs, separated by commas, are replicas of one server: each session stays with one of
    /// them.
    // The value is read by `plan`, because clap shows bad values and a URL may hold a secret.
    #[arg(long = "server", value_name = "NAME=URL[,URL...]")]
    pub(crate) servers: Vec<String>,

    /// Sign callers in at servers (OAuth), with this redirect URI
    ///
    /// The program at this URI passes the authorization code on to Bowline, as the answer to an
    /// elicitation or with `POST /api/mcp-oauth/callback`. This applies to the servers of `--server`,
    /// and to those of the file that have `oauth` without a `redirect_uri` or `flow`.
    // Read by `plan`, for the same reason.
    #[arg(long, value_name = "URI")]
    pub(crate) mcp_oauth_redirect_uri: Option<String>,

    /// Sign callers in at servers (OAuth), in this flow: `managed`, `client-driven` or `drive`
    ///
    /// This applies to the same servers. `drive` needs a redirect URI.
    #[arg(long, value_name = "FLOW", value_parser = flow)]
    pub(crate) mcp_oauth_flow: Option<Flow>,

    /// Sign callers in at servers (OAuth), with prompts for the clients of this program: `docker-agent`
    ///
    /// The flow is `managed`, or `drive` with a redirect URI; `--mcp-oauth-flow` wins. Clients that sign in by
    /// themselves may answer with tokens.
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(crate) mcp_oauth_host: Option<SignInHost>,

    /// Begin the keys in a prompt's `_meta` with this [default: what the host knows, or `bowline`]
    #[arg(long, value_name = "PREFIX", value_parser = meta_prefix)]
    pub(crate) mcp_oauth_meta_prefix: Option<String>,
}

/// Where the operator is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admin {
    Off,
    At(ListenAddress),
}

/// The times that `--timeout` may be.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60 * 60);

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    let time = time.filter(|time| (SHORTEST..=LONGEST).contains(time));
    time.ok_or_else(|| "write a time from `100ms` to `1h`, such as `30s`".to_owned())
}

fn flow(text: &str) -> Result<Flow, String> {
    Flow::named(text).ok_or_else(|| "write `managed`, `client-driven` or `drive`".to_owned())
}

fn host(text: &str) -> Result<SignInHost, String> {
    SignInHost::named(text).ok_or_else(|| "write `docker-agent`, or leave it out".to_owned())
}

fn meta_prefix(text: &str) -> Result<String, String> {
    match check_meta_prefix(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(problem) => Err(problem.help().to_owned()),
    }
}

fn address(text: &str) -> Result<ListenAddress, String> {
    text.parse().map_err(|problem: ListenProblem| {
        let what = problem.what();
        format!("{what}; write one such as `127.0.0.1:6270` or `unix:/run/bowline.sock`")
    })
}

fn admin(text: &str) -> Result<Admin, String> {
    if text == "off" {
        return Ok(Admin::Off);
    }
    let admin = text.parse().map(Admin::At);
    admin.map_err(|problem: ListenProblem| {
        let what = problem.what();
        format!("{what}; write one such as `127.0.0.1:6271`, or `off`")
    })
}

fn admin_address(text: &str) -> Result<ListenAddress, String> {
    text.parse().map_err(|problem: ListenProblem| {
        let what = problem.what();
        format!("{what}; write one such as `127.0.0.1:6271` or `unix:/run/bowline/admin.sock`")
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_knows_the_defaults() {
        let mut command = Arguments::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        let default = bowline::config::Config::default();
        for address in [default.listen, default.admin.unwrap()] {
            assert!(help.contains(&format!("[default: {address}]")), "{help}");
        }
    }

    #[test]
    fn admin_is_an_address_or_off() {
        assert_eq!(admin("off"), Ok(Admin::Off));
        assert_eq!(admin("[::1]:0"), Ok(Admin::At("[::1]:0".parse().unwrap())));
        let socket = "unix:/run/admin.sock";
        assert_eq!(admin(socket), Ok(Admin::At(socket.parse().unwrap())));
        for bad in ["", "OFF", "localhost:1", "127.0.0.1", "unix:admin.sock"] {
            assert!(admin(bad).is_err(), "{bad}");
        }
    }
}
