//! What `bowline check` prints: the configuration as it was understood, in the file's own words,
//! defaults included and secrets masked.

mod callers;
mod union;

use std::fmt;
use std::time::Duration;

use bowline::config::{
    Command, Config, Fingerprint, OAuth, OnLoss, OnUnreachable, Password, Recovery, RedisStore,
    Replay, Server, ServerOAuth, SignInHost, Store, StoreKind, Target,
};
use bowline_system::printable::is_unprintable;
use http::Uri;

use crate::plan::Plan;

/// What stands for a secret, however long it is.
const MASKED: &str = "****";

/// Said of a `public_url` with a path.
const SHARED_ORIGIN: &str = "\
# public_url has a path: give the gateway a host name of its own. Browsers tell origins apart, not paths, so
# everything else at this one could finish a sign-in in somebody's browser that it planted there.";

/// Paths that servers have and that nobody would choose as a secret.
const PLAIN_PATHS: [&str; 5] = ["/", "/mcp", "/mcp/", "/health", "/healthz"];

/// A plan as text.
#[derive(Debug)]
pub(crate) struct Summary<'a>(pub(crate) &'a Plan);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { config, demo } = self.0;
        gateway(f, config)?;
        for (name, one) in &config.servers {
            writeln!(f, "\n[servers.{}]", key(name.as_ref()))?;
            server(f, one)?;
            union::member(f, config, name, one)?;
            if let Some(oauth) = &one.oauth {
                writeln!(f, "\n[servers.{}.oauth]", key(name.as_ref()))?;
                server_oauth(f, oauth)?;
            }
            for lost in &one.recovery.fingerprints {
                writeln!(f, "\n[[servers.{}.session_lost]]", key(name.as_ref()))?;
                fingerprint(f, lost)?;
            }
        }
        union::unions(f, config)?;
        if *demo {
            writeln!(
                f,
                "\n# no servers: `bowline serve` runs its built-in demo server"
            )?;
        }
        callers::callers(f, config)?;
        writeln!(f, "\nok")
    }
}

fn gateway(f: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    writeln!(f, "listen = {}", string(&config.listen.to_string()))?;
    match &config.admin {
        Some(admin) => writeln!(f, "admin = {}", string(&admin.to_string()))?,
        None => writeln!(f, "admin = \"off\"")?,
    }
    writeln!(f, "stop_timeout = {}", duration(config.stop_timeout))?;
    if !config.hosts.is_empty() {
        writeln!(f, "hosts = [{}]", strings(&config.hosts))?;
    }
    if !config.origins.is_empty() {
        writeln!(f, "origins = [{}]", strings(&config.origins))?;
    }
    if let Some(tls) = &config.tls {
        writeln!(f, "\n[tls]")?;
        writeln!(f, "cert = {}", string(&tls.cert().to_string_lossy()))?;
        writeln!(f, "key = {}", string(&tls.key().to_string_lossy()))?;
        writeln!(f, "# {}", tls.dates())?;
    }
    store(f, &config.store)?;
    peers(f, config)?;
    let limits = &config.limits;
    writeln!(f, "\n[limits]")?;
    writeln!(f, "sessions = {}", limits.sessions)?;
    writeln!(f, "streams = {}", limits.streams)?;
    writeln!(f, "connections = {}", limits.connections)?;
    writeln!(f, "children = {}", limits.children)?;
    let per_address = limits.connections_per_address;
    writeln!(f, "connections_per_address = {per_address}")?;
    let proxies = limits.proxies.iter().map(|proxy| format!("\"{proxy}\""));
    let proxies: Vec<_> = proxies.collect();
    writeln!(f, "proxies = [{}]", proxies.join(", "))?;
    writeln!(f, "body_bytes = {}", limits.body_bytes)?;
    writeln!(f, "session_idle = {}", duration(limits.session_idle))?;
    match limits.session_max_age {
        Some(age) => writeln!(f, "session_max_age = {}", duration(age))?,
        None => writeln!(f, "# no session_max_age: sessions in use never expire")?,
    }
    let is_used = config.servers.values().any(|server| server.oauth.is_some());
    if is_used || config.oauth != OAuth::default() {
        oauth(f, config)?;
    }
    Ok(())
}

// Nothing of a redirect URI is masked, nor of the other URLs: everybody who signs in sees them, and
// they must be what an authorization server knows.
fn oauth(f: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    let oauth = &config.oauth;
    writeln!(f, "\n[oauth]")?;
    match &oauth.public_url {
        Some(url) => {
            writeln!(f, "public_url = \"{url}\"")?;
            if url.path() != "/" {
                writeln!(f, "{SHARED_ORIGIN}")?;
            }
        }
        None if config.listen.is_local() && config.listen.tcp().is_some() => {
            writeln!(
                f,
                "# no public_url: it is {}://{}",
                config.scheme(),
                config.listen
            )?;
        }
        None => writeln!(f, "# no public_url: no sign-in pages are served")?,
    }
    if let Some(uri) = &oauth.redirect_uri {
        writeln!(f, "redirect_uri = {}", string(uri.as_str()))?;
    }
    if let Some(flow) = oauth.flow {
        writeln!(f, "flow = \"{}\"", flow.name())?;
    }
    writeln!(f, "deadline = {}", duration(oauth.deadline))?;
    writeln!(f, "hold = {}", duration(oauth.hold))?;
    if oauth.host == SignInHost::DockerAgent {
        writeln!(f, "host = \"{}\"", SignInHost::DOCKER_AGENT)?;
    }
    writeln!(f, "meta_prefix = {}", string(&oauth.meta_prefix))
}

fn server_oauth(f: &mut fmt::Formatter<'_>, oauth: &ServerOAuth) -> fmt::Result {
    writeln!(f, "flow = \"{}\"", oauth.flow.name())?;
    if let Some(uri) = &oauth.redirect_uri {
        writeln!(f, "redirect_uri = {}", string(uri.as_str()))?;
    }
    match (&oauth.client, &oauth.client_metadata_url) {
        (Some(client), _) => {
            writeln!(f, "client_id = {}", string(&client.id))?;
            if client.secret.is_some() {
                writeln!(f, "client_secret = \"{MASKED}\"")?;
            }
        }
        (None, Some(url)) => writeln!(f, "client_metadata_url = {}", string(url))?,
        (None, None) => writeln!(f, "# no client_id: Bowline registers itself where it can")?,
    }
    if oauth.scopes.is_empty() {
        writeln!(
            f,
            "# no scopes: those that the server asks for are requested"
        )?;
    } else {
        writeln!(f, "scopes = [{}]", strings(&oauth.scopes))?;
    }
    match &oauth.issuer {
        Some(issuer) => writeln!(f, "issuer = {}", string(issuer))?,
        None => writeln!(f, "# no issuer: the server's metadata names it")?,
    }
    let elsewhere: Vec<_> = oauth
        .endpoints_elsewhere
        .iter()
        .map(|it| string(it))
        .collect();
    writeln!(f, "endpoints_elsewhere = [{}]", elsewhere.join(", "))?;
    writeln!(f, "allow_private = {}", oauth.allow_private)?;
    writeln!(f, "several_origins = {}", oauth.several_origins)?;
    writeln!(f, "unlisted_pkce = {}", oauth.unlisted_pkce)
}

fn store(f: &mut fmt::Formatter<'_>, store: &Store) -> fmt::Result {
    writeln!(f, "\n[store]")?;
    match &store.kind {
        StoreKind::Memory => {
            if store.lacks_state_directory {
                writeln!(f, "# neither XDG_STATE_HOME nor HOME is set")?;
            }
            return writeln!(f, "kind = \"memory\"");
        }
        StoreKind::File { path } => {
            writeln!(
                f,
                "kind = \"file\"\npath = {}",
                string(&path.to_string_lossy())
            )?;
        }
        StoreKind::Redis(place) => redis(f, place)?,
    }
    writeln!(f, "timeout = {}", duration(store.timeout))?;
    writeln!(f, "cache = {}", store.cache)?;
    writeln!(f, "grace = {}", duration(store.grace))?;
    match (&store.seal_keys, &store.seal_keys_file) {
        (Some(_), _) => writeln!(f, "# encrypted with the keys in BOWLINE_SEAL_KEYS"),
        (None, Some(file)) => {
            writeln!(f, "seal_keys_file = {}", string(&file.to_string_lossy()))
        }
        (None, None) => writeln!(
            f,
            "# encrypted with a generated key, stored beside the sessions"
        ),
    }
}

fn peers(f: &mut fmt::Formatter<'_>, config: &Config) -> fmt::Result {
    if let Some(lack) = config.lacks_peers() {
        writeln!(f, "\n# no peers: {lack}")?;
    }
    let Some(peers) = &config.peers else {
        return Ok(());
    };
    writeln!(f, "\n[peers]")?;
    writeln!(f, "listen = \"{}\"", peers.listen)?;
    match &peers.advertise {
        Some(advertise) => writeln!(f, "advertise = {}", string(advertise))?,
        None => writeln!(f, "# no advertise: it is what `listen` is")?,
    }
    match &peers.secret {
        Password::Written(_) => writeln!(f, "secret = \"{MASKED}\""),
        Password::File(file) => writeln!(f, "secret_file = {}", string(&file.to_string_lossy())),
    }
}

fn redis(f: &mut fmt::Formatter<'_>, redis: &RedisStore) -> fmt::Result {
    // Credentials are not in it, and its path is a number.
    writeln!(f, "kind = \"redis\"\nurl = \"{}\"", redis.url)?;
    if let Some(user) = &redis.user {
        writeln!(f, "user = {}", string(user))?;
    }
    match &redis.password {
        None => {}
        Some(Password::Written(_)) => writeln!(f, "password = \"{MASKED}\"")?,
        Some(Password::File(file)) => {
            writeln!(f, "password_file = {}", string(&file.to_string_lossy()))?;
        }
    }
    if let Some(file) = &redis.ca_file {
        writeln!(f, "ca_file = {}", string(&file.to_string_lossy()))?;
    }
    writeln!(f, "prefix = {}", string(&redis.prefix))?;
    let on_unreachable_start = match redis.on_unreachable_start {
        OnUnreachable::Wait => "wait",
        OnUnreachable::Exit => "exit",
    };
    writeln!(f, "on_unreachable_start = \"{on_unreachable_start}\"")
}

fn server(f: &mut fmt::Formatter<'_>, server: &Server) -> fmt::Result {
    match &server.target {
        Target::Url(one) => writeln!(f, "url = {}", url(one))?,
        Target::Endpoints(all) => {
            writeln!(f, "endpoints = [")?;
            for one in all {
                writeln!(f, "    {},", url(one))?;
            }
            writeln!(f, "]")?;
        }
        Target::Command(one) => {
            command(f, one)?;
            call_timeout(f, server)?;
            return recovery(f, &server.recovery);
        }
    }
    if !server.headers.is_empty() {
        let names = server.headers.keys();
        let headers: Vec<_> = names.map(|name| format!("{name} = \"{MASKED}\"")).collect();
        writeln!(f, "headers = {{ {} }}", headers.join(", "))?;
    }
    if !server.forward_headers.is_empty() {
        let names = server.forward_headers.iter();
        let names: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
        writeln!(f, "forward_headers = [{}]", names.join(", "))?;
    }
    if let Some(ca) = &server.ca {
        let file = ca.file().display().to_string();
        writeln!(f, "ca_file = {}", string(&file))?;
    }
    writeln!(f, "connect_timeout = {}", duration(server.connect_timeout))?;
    call_timeout(f, server)?;
    let every = duration(server.health.every);
    match &server.health.get {
        None => writeln!(f, "health = {{ every = {every} }}")?,
        Some(get) => {
            let get = masked_path(get.path(), get.query());
            writeln!(f, "health = {{ every = {every}, get = \"{get}\" }}")?;
        }
    }
    match server.keep_alive {
        Some(time) => writeln!(f, "keep_alive = {}", duration(time))?,
        None => writeln!(f, "keep_alive = \"off\"")?,
    }
    recovery(f, &server.recovery)
}

/// A command: its arguments and the values of its variables may be secrets.
fn command(f: &mut fmt::Formatter<'_>, command: &Command) -> fmt::Result {
    let mut words = vec![string(&command.program)];
    words.extend(command.args.iter().map(|_| format!("\"{MASKED}\"")));
    writeln!(f, "command = [{}]", words.join(", "))?;
    if !command.env.is_empty() {
        let names = command.env.keys();
        let env: Vec<_> = names
            .map(|name| format!("{} = \"{MASKED}\"", string(name)))
            .collect();
        writeln!(f, "env = {{ {} }}", env.join(", "))?;
    }
    match &command.cwd {
        Some(cwd) => writeln!(f, "cwd = {}", string(&cwd.to_string_lossy())),
        None => Ok(()),
    }
}

fn call_timeout(f: &mut fmt::Formatter<'_>, server: &Server) -> fmt::Result {
    match server.call_timeout {
        Some(timeout) => writeln!(f, "call_timeout = {}", duration(timeout)),
        None => writeln!(f, "# no call_timeout: calls never time out"),
    }
}

fn recovery(f: &mut fmt::Formatter<'_>, recovery: &Recovery) -> fmt::Result {
    writeln!(f, "recovery_budget = {}", duration(recovery.budget))?;
    let on_loss = match recovery.on_loss {
        OnLoss::Recover => "recover",
        OnLoss::Tell => "tell",
    };
    writeln!(f, "on_session_loss = \"{on_loss}\"")?;
    match &recovery.replay {
        Replay::Safe => writeln!(f, "replay = \"safe\"")?,
        Replay::Never => writeln!(f, "replay = \"never\"")?,
        Replay::Tools(tools) => {
            let tools: Vec<_> = tools.iter().map(|tool| string(tool)).collect();
            writeln!(f, "replay = [{}]", tools.join(", "))?;
        }
    }
    writeln!(f, "drain_timeout = {}", duration(recovery.drain_timeout))
}

fn fingerprint(f: &mut fmt::Formatter<'_>, fingerprint: &Fingerprint) -> fmt::Result {
    writeln!(f, "status = {}", fingerprint.status.as_u16())?;
    if let Some(code) = fingerprint.code {
        writeln!(f, "code = {code}")?;
    }
    match &fingerprint.text {
        Some(text) => writeln!(f, "text = {}", string(text)),
        None => Ok(()),
    }
}

/// A name as a key of TOML; the only character that needs quotes is the dot.
fn key(name: &str) -> String {
    if name.contains('.') {
        format!("\"{name}\"")
    } else {
        name.to_owned()
    }
}

/// Strings of TOML, as in a list.
fn strings(texts: &[String]) -> String {
    let strings: Vec<_> = texts.iter().map(|text| string(text)).collect();
    strings.join(", ")
}

/// A string of TOML; nothing in it can steer a terminal.
fn string(text: &str) -> String {
    let mut string = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => string.extend(['\\', c]),
            _ if is_unprintable(c) && c.len_utf16() == 1 => {
                string.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ if is_unprintable(c) => string.push_str(&format!("\\U{:08x}", u32::from(c))),
            _ => string.push(c),
        }
    }
    string.push('"');
    string
}

fn duration(duration: Duration) -> String {
    format!("\"{}\"", humantime::format_duration(duration))
}

/// Scheme, host and port; in path and query some servers want a secret.
fn url(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let path = masked_path(url.path(), url.query());
    format!("\"{scheme}://{authority}{path}\"")
}

fn masked_path(path: &str, query: Option<&str>) -> String {
    let path = if PLAIN_PATHS.contains(&path) {
        path.to_owned()
    } else {
        format!("/{MASKED}")
    };
    match query {
        None => path,
        Some(_) => format!("{path}?{MASKED}"),
    }
}
