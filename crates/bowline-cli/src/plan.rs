//! The meaning of the command line: a configuration, and whether the demo server is part of it.
//!
//! Flags win over the file. All bad flags with a URL are reported at once, and none with its URL.

use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr as _;

use bowline::SealKeys;
use bowline::config::{
    Config, Environment, Flags, Flow, KeyHash, LoadError, OAuth, RedirectProblem, RedirectUri,
    Server, ServerName, SignInProblem, Store, StoreKind, UnionProblem,
};

use crate::args::{Admin, ConfigArguments};
use crate::environment;
use crate::failure::{Complaint, Failure};

/// The configuration to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// No server was given, so the demo server runs.
    pub(crate) demo: bool,
}

/// The environment variables with the API token, and with the file that has it.
const API_TOKEN: &str = "BOWLINE_API_TOKEN";
const API_TOKEN_FILE: &str = "BOWLINE_API_TOKEN_FILE";

/// The environment variable with the seal keys.
const SEAL_KEYS: &str = "BOWLINE_SEAL_KEYS";

const SERVER_HELP: &str = "write it like `--server files=http://127.0.0.1:8000/mcp`";

// === impl Plan ===

impl Plan {
    /// Reads the file, if there is one, and lets the flags win over it.
    pub(crate) fn new(
        arguments: &ConfigArguments,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        let FlagValues {
            mut servers,
            redirect_uri,
        } = read_flags(arguments).map_err(Failure::Usage)?;
        let flags = Flags {
            listen: arguments.listen.clone(),
            redirect_uri,
            flow: arguments.mcp_oauth_flow,
            host: arguments.mcp_oauth_host,
            meta_prefix: arguments.mcp_oauth_meta_prefix.clone(),
            servers: servers.iter().map(|(name, _)| name.clone()).collect(),
        };
        let mut config = load(arguments.config.as_deref(), environment, &flags)?;
        if flags.redirect_uri.is_some() || flags.flow.is_some() || flags.host.is_some() {
            check_flow(&config.oauth)?;
            let sign_in = |server: &mut Server| server.oauth = Some(config.oauth.server());
            servers
                .iter_mut()
                .map(|(_, server)| server)
                .for_each(sign_in);
        }
        config.api_token = api_token(environment)?;
        config.store.seal_keys = seal_keys(&config.store, environment)?;
        let order = &mut config.order;
        for (name, _) in &servers {
            if !order.contains(name) {
                order.push(name.clone());
            }
        }
        // A replaced server loses its headers too: they were meant for another URL.
        config.servers.extend(servers);
        match &arguments.admin {
            None => {}
            Some(Admin::Off) => config.admin = None,
            Some(Admin::At(address)) => config.admin = Some(address.clone()),
        }
        check_whole(&config)?;
        match (&arguments.config, config.servers.is_empty()) {
            (Some(path), true) => Err(Failure::usage(
                format!("{} has no servers", path.display()),
                "add one with `--server files=http://127.0.0.1:8000/mcp`, or to the file:\n\n    \
                 [servers.files]\n    \
                 url = \"http://127.0.0.1:8000/mcp\"",
            )),
            (_, demo) => Ok(Self { config, demo }),
        }
    }
}

/// The file's configuration, without any flags; without a file, the defaults.
pub(crate) fn config_of(file: Option<&Path>) -> Result<Config, Failure> {
    match file {
        Some(file) => {
            let arguments = ConfigArguments {
                config: Some(file.to_owned()),
                ..ConfigArguments::default()
            };
            Ok(Plan::new(&arguments, &environment::variable)?.config)
        }
        None => Config::parse("", "", &environment::variable).map_err(Failure::Config),
    }
}

/// The configuration of the file; without a file, the defaults.
fn load(
    file: Option<&Path>,
    environment: &Environment<'_>,
    flags: &Flags,
) -> Result<Config, Failure> {
    let Some(path) = file else {
        return Ok(Config::of_flags(flags));
    };
    Config::load_with(path, environment, flags).map_err(|error| match error {
        LoadError::Invalid(errors) => Failure::Config(errors),
        LoadError::Read { ref source, .. } => {
            let help = read_help(source.kind());
            Failure::Usage(vec![Complaint::from_error(&error).with_help(help)])
        }
    })
}

/// Checks the flow and the redirect URI of servers that say nothing about it.
fn check_flow(oauth: &OAuth) -> Result<(), Failure> {
    match (oauth.flow, &oauth.redirect_uri) {
        (Some(Flow::Drive), None) => Err(Failure::usage(
            "the flow `drive` needs a redirect URI, and there is none",
            "add `--mcp-oauth-redirect-uri https://app.example/cb`",
        )),
        (Some(flow @ (Flow::Managed | Flow::ClientDriven)), Some(_)) => Err(Failure::usage(
            format!(
                "a redirect URI means nothing with the flow `{}`",
                flow.name()
            ),
            "take one of the two out, or write `--mcp-oauth-flow drive`",
        )),
        _ => Ok(()),
    }
}

/// Checks what only file and flags together can break.
fn check_whole(config: &Config) -> Result<(), Failure> {
    let admin = config.admin.as_ref();
    if admin.is_some_and(|admin| admin.collides_with(&config.listen)) {
        return Err(Failure::usage(
            "`listen` and `admin` cannot share an address",
            "give `--listen` or `--admin` another port or path, or write `--admin off`",
        ));
    }
    let token = config.api_token.as_ref();
    let mut callers = config.callers.iter();
    if let Some((name, _)) =
        callers.find(|(_, caller)| token.is_some() && token == caller.key.as_ref())
    {
        return Err(Failure::usage(
            format!(
                "the API token is also the key of the caller `{name}`, who could sign others out with it"
            ),
            format!("give the caller another key, or set {API_TOKEN} to another token"),
        ));
    }
    let unions = config.union_problems();
    if !unions.is_empty() {
        let complain = |problem: &UnionProblem| Complaint::new(problem.what(), problem.help());
        return Err(Failure::Usage(unions.iter().map(complain).collect()));
    }
    let problems = config.sign_in_problems();
    if problems.is_empty() {
        return Ok(());
    }
    let complain = |(name, problem): (&_, SignInProblem)| {
        Complaint::new(format!("server {name}: {}", problem.what()), problem.help())
    };
    Err(Failure::Usage(problems.into_iter().map(complain).collect()))
}

/// The API token, from the environment or from the file that it names. A variable that is set but empty is
/// a mistake: it would leave the API open.
fn api_token(environment: &Environment<'_>) -> Result<Option<KeyHash>, Failure> {
    let given = |name| match environment(name) {
        Some(text) if text.trim().is_empty() => Err(Failure::usage(
            format!("{name} is set but empty"),
            "give it a value, or unset it to have none",
        )),
        given => Ok(given),
    };
    let token = match (given(API_TOKEN)?, given(API_TOKEN_FILE)?) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(
                format!("both {API_TOKEN} and {API_TOKEN_FILE} are set"),
                "set one of the two",
            ));
        }
        (token, None) => token,
        (None, Some(path)) => {
            let text = fs::read_to_string(&path).map_err(|error| {
                let message = format!("cannot read {path} ({API_TOKEN_FILE}): {error}");
                Failure::usage(message, read_help(error.kind()))
            })?;
            // Not refused: a secret that is mounted into a container often cannot have another mode.
            if bowline::is_open_to_others(path.as_ref()).unwrap_or(false) {
                tracing::warn!(%path, "other users of this machine can read or change this file: it has to be this user's (chmod 600), in a directory that nobody else can write to");
            }
            let token = text.trim_end_matches(['\r', '\n']).to_owned();
            if token.trim().is_empty() {
                return Err(Failure::usage(
                    format!("{path} ({API_TOKEN_FILE}) is empty"),
                    "write the token into it",
                ));
            }
            Some(token)
        }
    };
    Ok(token.map(|token| KeyHash::of(token.as_bytes())))
}

/// The seal keys of the environment; a store that is shared needs keys from somewhere.
fn seal_keys(store: &Store, environment: &Environment<'_>) -> Result<Option<SealKeys>, Failure> {
    let text = environment(SEAL_KEYS).filter(|text| !text.trim().is_empty());
    if let Some(text) = text {
        let keys = SealKeys::parse(&text).map_err(|error| {
            Failure::usage(
                format!("{SEAL_KEYS}: {error}"),
                "make a key with `bowline keygen`; several are separated by commas, newest first",
            )
        })?;
        return Ok(Some(keys));
    }
    if matches!(store.kind, StoreKind::Redis(_)) && store.seal_keys_file.is_none() {
        return Err(Failure::usage(
            "sessions in Redis are encrypted, and no seal key is configured",
            format!(
                "make one with `bowline keygen` and give it to every gateway, in {SEAL_KEYS} or in \
                 the file that `seal_keys_file` names"
            ),
        ));
    }
    Ok(None)
}

/// The help for a file that cannot be read.
fn read_help(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "correct the path; it is relative to the working directory",
        io::ErrorKind::PermissionDenied => "let the user that runs Bowline read it",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "give a file that can be read, or none to try the demo",
    }
}

/// The values of flags that hold URLs.
struct FlagValues {
    /// In the order in which they were given.
    servers: Vec<(ServerName, Server)>,
    redirect_uri: Option<RedirectUri>,
}

fn read_flags(arguments: &ConfigArguments) -> Result<FlagValues, Vec<Complaint>> {
    let mut servers: Vec<(ServerName, Server)> = Vec::new();
    let mut complaints = Vec::new();
    let uri = arguments.mcp_oauth_redirect_uri.as_deref();
    let uri = uri.and_then(|uri| {
        let complain = |problem: RedirectProblem| {
            let message = format!("--mcp-oauth-redirect-uri: {}", problem.what());
            complaints.push(Complaint::new(message, problem.help()));
        };
        RedirectUri::from_str(uri).map_err(complain).ok()
    });
    for flag in &arguments.servers {
        match server(flag) {
            Err(complaint) => complaints.push(complaint),
            Ok((name, server)) => {
                if servers.iter().any(|(given, _)| *given == name) {
                    let message = format!("--server {name}: the name is given twice");
                    complaints.push(Complaint::new(message, "give each server its own name"));
                }
                servers.push((name, server));
            }
        }
    }
    if complaints.is_empty() {
        Ok(FlagValues {
            servers,
            redirect_uri: uri,
        })
    } else {
        Err(complaints)
    }
}

fn server(flag: &str) -> Result<(ServerName, Server), Complaint> {
    // In `http://host/?key=value` there is a `=`, but no name before it.
    let named = flag
        .split_once('=')
        .filter(|(name, _)| !name.contains("://"));
    let Some((written_name, url)) = named else {
        let message = "--server: the value has no name, it must be NAME=URL";
        return Err(Complaint::new(message, SERVER_HELP));
    };
    let name = ServerName::from_str(written_name).map_err(|problem| {
        let shown = written_name.escape_debug();
        let message = format!("--server {shown}: {}", problem.what());
        Complaint::new(message, problem.help())
    })?;
    let server = Server::from_urls(url).map_err(|problem| {
        let message = format!("--server {name}: {}", problem.what());
        Complaint::new(message, problem.help())
    })?;
    Ok((name, server))
}

#[cfg(test)]
mod tests;
