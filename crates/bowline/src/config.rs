//! The configuration of the gateway: what an operator may set, and what it means.
//!
//! Reading goes in two stages. The text, TOML or an editor's JSON, becomes a `tree` of values with
//! their places, into which `expand` puts `variables`; `file` (or `editor`) takes from it what is
//! written, by the keys that `keys` declares; `check` turns that into the types below, which hold
//! only values that can work. All add what they find to one list, so an operator sees every
//! problem of a file at once; `report` shows them, and `mask` decides which parts may be shown.
//!
//! The command line may replace single values afterwards (`--server NAME=URL` goes through
//! [`Server::from_urls`], so both ways in obey the same rules). Nothing here opens a socket or
//! reads the environment: the caller of these functions provides the variables.

mod caller;
mod check;
mod command;
mod editor;
mod expand;
mod file;
mod header;
mod json;
mod keys;
mod listen;
mod mask;
mod name;
mod network;
mod oauth;
pub(crate) mod peers;
mod read;
mod redirect;
mod report;
mod schema;
mod server;
mod store;
mod suggest;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod toml_file;
mod tools;
mod tree;
mod union;
mod url;
mod variables;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use bowline_egress::{Certificates, CertificatesError};
pub use bowline_store::Password;

pub use self::caller::{Caller, CallerName, CertificateHash, KeyHash};
pub use self::command::Command;
pub use self::header::{Header, HeaderProblem};
pub use self::listen::{ListenAddress, ListenProblem};
pub use self::name::{NameProblem, ServerName};
pub use self::network::{Network, NotANetwork};
pub use self::oauth::{
    Client, ClientSecret, Flow, MetaPrefixProblem, OAuth, ServerOAuth, SignInHost, SignInProblem,
    check_meta_prefix,
};
pub use self::peers::Peers;
pub use self::redirect::{RedirectProblem, RedirectUri};
pub use self::report::{ConfigErrors, Problem};
pub use self::schema::schema;
pub use self::server::{Fingerprint, Health, OnLoss, Recovery, Replay, Server, Target, Transport};
pub use self::store::{OnUnreachable, RedisStore, Store, StoreKind};
pub use self::tls::{ServerCertificate, ServerCertificateError};
pub use self::tools::ToolFilter;
pub(crate) use self::union::COMMON as COMMON_UNION;
pub use self::union::{Union, UnionNames, UnionProblem};
pub use self::url::{UrlProblem, shown_url};

/// The whole configuration of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where MCP clients connect.
    pub listen: ListenAddress,
    /// Where health and metrics are served; `None` when switched off.
    pub admin: Option<ListenAddress>,
    /// The certificate with which clients are served by TLS; without it they are served by plain HTTP.
    pub tls: Option<ServerCertificate>,
    /// Host names of the gateway, besides its addresses and that of [`OAuth::public_url`].
    pub hosts: Vec<String>,
    /// Origins of web pages that may use the gateway, besides its own.
    pub origins: Vec<String>,
    /// Where sessions are kept.
    pub store: Store,
    /// How gateways on the store reach each other, if they do.
    pub peers: Option<Peers>,
    /// The limits above which the gateway rejects requests.
    pub limits: Limits,
    /// What holds for signing in at every server that wants it.
    pub oauth: OAuth,
    /// The MCP servers behind the gateway, by the name that clients use in the path.
    pub servers: BTreeMap<ServerName, Server>,
    /// The order in which they were written, which unions keep. Servers that are not in it come last, by name.
    pub order: Vec<ServerName>,
    /// What `/mcp` is where there are several servers; see [`Config::whole_union`].
    pub union: Union,
    /// Unions with a name of their own, by that name.
    pub unions: BTreeMap<ServerName, Union>,
    /// Who may use the gateway; nothing is required when this is empty.
    pub callers: BTreeMap<CallerName, Caller>,
    /// What the operator's API asks for, if it asks for anything.
    pub api_token: Option<KeyHash>,
    /// The program that starts the processes of servers that are commands, and its arguments; it has to call
    /// `bowline_children::supervise`. This program with the argument `supervise` when it is empty.
    pub supervisor: Vec<String>,
    /// How long requests in flight may take to finish when the gateway stops.
    pub stop_timeout: Duration,
}

/// The limits above which the gateway rejects requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions kept at the same time.
    pub sessions: usize,
    /// Requests and streams in flight at the same time.
    pub streams: usize,
    /// Connections of clients at the same time.
    pub connections: usize,
    /// Processes of servers that are commands at the same time.
    pub children: usize,
    /// Of the connections, how many one address may have whose requests have not shown who they are from.
    pub connections_per_address: usize,
    /// Addresses to which that does not apply: the balancers in front.
    pub proxies: Vec<Network>,
    /// The largest body of one message, in bytes.
    pub body_bytes: usize,
    /// How long a session is kept after its last use.
    pub session_idle: Duration,
    /// How long a session may last, used or not; `None` for no limit.
    pub session_max_age: Option<Duration>,
}

/// What variables hold, for `${NAME}` in a file; `None` when there is no such variable.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// What the command line says in place of the file, where that decides how the rest is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Where MCP clients connect.
    pub listen: Option<ListenAddress>,
    /// The redirect URI of servers that have none of their own.
    pub redirect_uri: Option<RedirectUri>,
    /// The flow of servers that have none of their own.
    pub flow: Option<Flow>,
    /// The program that shows sign-in prompts.
    pub host: Option<SignInHost>,
    /// What the keys in a prompt's `_meta` begin with.
    pub meta_prefix: Option<String>,
    /// The names of servers that are added to the file's.
    pub servers: Vec<ServerName>,
}

/// A configuration file that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// Why it could not be read.
        source: io::Error,
    },
    /// The file was read, and something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6270)).into(),
            admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 6271)).into()),
            tls: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            store: Store::default(),
            peers: None,
            limits: Limits::default(),
            oauth: OAuth::default(),
            servers: BTreeMap::new(),
            order: Vec::new(),
            union: Union::default(),
            unions: BTreeMap::new(),
            callers: BTreeMap::new(),
            api_token: None,
            supervisor: Vec::new(),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Reads a configuration from TOML, or from an editor's JSON; `source_name` stands for the
    /// file in error messages.
    pub fn parse(
        source_name: &str,
        text: &str,
        environment: &Environment<'_>,
    ) -> Result<Self, ConfigErrors> {
        Self::parse_with(source_name, text, environment, &Flags::default())
    }

    fn parse_with(
        source_name: &str,
        text: &str,
        environment: &Environment<'_>,
        flags: &Flags,
    ) -> Result<Self, ConfigErrors> {
        let mut findings = report::Findings::default();
        let json = editor::is_json(text);
        let root = if json {
            json::parse(text, &mut findings)
        } else {
            toml_file::parse(text, &mut findings)
        };
        let config = root.map(|mut root| {
            expand::expand(&mut root, "", text, environment, &mut findings);
            let read = if json { editor::read } else { file::read };
            let written = read(&root, text, &mut findings);
            check::check(written, environment, flags, &mut findings)
        });
        findings
            .into_result(source_name, text)
            .map(|()| config.unwrap_or_default())
    }

    /// How URLs of the gateway begin: `https` with [`Config::tls`].
    pub fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The configuration without a file.
    pub fn of_flags(flags: &Flags) -> Self {
        let default = Self::default();
        Self {
            listen: flags.listen.clone().unwrap_or(default.listen),
            oauth: check::oauth_of_flags(flags),
            ..Self::default()
        }
    }

    /// Reads a configuration from a file.
    pub fn load(path: &Path, environment: &Environment<'_>) -> Result<Self, LoadError> {
        Self::load_with(path, environment, &Flags::default())
    }

    /// The same, with what these flags say in its place.
    pub fn load_with(
        path: &Path,
        environment: &Environment<'_>,
        flags: &Flags,
    ) -> Result<Self, LoadError> {
        let text = fs::read_to_string(path).map_err(|source| LoadError::Read {
            path: path.to_owned(),
            source,
        })?;
        let source_name = path.display().to_string();
        Ok(Self::parse_with(&source_name, &text, environment, flags)?)
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 100_000,
            streams: 20_000,
            connections: 40_000,
            children: 200,
            connections_per_address: 500,
            proxies: Vec::new(),
            body_bytes: 8 * 1024 * 1024,
            session_idle: Duration::from_secs(30 * 60),
            session_max_age: None,
        }
    }
}
