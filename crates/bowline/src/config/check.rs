//! The configuration as meant: every value of the file checked against the rules.
//!
//! The second of two stages. A value that breaks a rule is reported and its default stands in,
//! so that the rest is checked as well; the result counts only if nothing was reported.

mod caller;
mod command;
pub(super) mod headers;
mod names;
mod oauth;
mod peers;
mod recovery;
mod server;
mod store;
mod tls;
mod union;
mod value;

use super::file::{self, File};
use super::keys::SMALLEST_BODY;
use super::read::Texts;
use super::report::Findings;
use super::{Config, Environment, Flags, Limits, ListenAddress, Network, OAuth};

/// What holds for signing in at every server, without a file.
pub(super) fn oauth_of_flags(flags: &Flags) -> OAuth {
    oauth::check(&file::OAuth::default(), flags, &mut Findings::default())
}

/// The file as meant; what is wrong goes to `findings`.
pub(super) fn check(
    file: File,
    environment: &Environment<'_>,
    flags: &Flags,
    findings: &mut Findings,
) -> Config {
    let default = Config::default();
    let (listen, admin) = addresses(&file, findings);
    let stop_timeout = file.stop_timeout.as_ref();
    let (known, places) = (union::Known::of(&file, flags), union::Places::of(&file));
    let signing_in = oauth::SigningIn::of(&file);
    let oauth = oauth::check(&file.oauth, flags, findings);
    let order = file.servers.iter();
    let order = order.filter_map(|server| server.name.get_ref().parse().ok());
    let order = order.collect();
    let servers = file.servers.into_iter();
    let store = store::check(&file.store, environment, findings);
    let listen = flags.listen.clone().unwrap_or(listen);
    let has_tls = file.tls.is_some();
    let config = Config {
        tls: tls::check(file.tls.as_ref(), &listen, findings),
        listen,
        admin,
        stop_timeout: value::duration("stop_timeout", stop_timeout, default.stop_timeout, findings),
        hosts: names::hosts(file.hosts.as_ref(), findings),
        origins: names::origins(file.origins.as_ref(), findings),
        peers: peers::check(file.peers.as_ref(), &store, findings),
        store,
        limits: limits(&file.limits, findings),
        servers: servers
            .filter_map(|server| server::check(server, &oauth, environment, findings))
            .collect(),
        order,
        oauth,
        union: union::check(&file.union, &known, findings),
        unions: union::named(&file.unions, &known, findings),
        callers: caller::check(file.callers, has_tls, &known, findings),
        // Not in a file: a token in the environment is one place less to leak it.
        api_token: None,
        supervisor: Vec::new(),
    };
    signing_in.check(&config, findings);
    places.check(&config, flags, findings);
    config
}

fn addresses(file: &File, findings: &mut Findings) -> (ListenAddress, Option<ListenAddress>) {
    let Config { listen, admin, .. } = Config::default();
    let written = file.listen.as_ref();
    let listen = written.map_or(Some(listen), |written| {
        let help = "write an IP address and a port, such as `127.0.0.1:6270`, or a Unix socket, such as `unix:/run/bowline.sock`";
        value::address("listen", help, written, findings)
    });
    let admin = match &file.admin {
        None => admin,
        Some(written) if written.get_ref() == "off" => None,
        Some(written) => {
            let help = "write an IP address and a port, such as `127.0.0.1:6271`, a Unix socket, such as `unix:/run/bowline-admin.sock`, or `off`";
            value::address("admin", help, written, findings)
        }
    };
    let both = listen.as_ref().zip(admin.as_ref());
    let shared = both.is_some_and(|(listen, admin)| listen.collides_with(admin));
    if let (true, Some(place)) = (shared, file.admin.as_ref().or(written)) {
        findings.add(
            place.span(),
            "`listen` and `admin` are the same address",
            "give one of them another port or path, or set `admin = \"off\"`",
        );
    }
    (listen.unwrap_or(Config::default().listen), admin)
}

fn limits(written: &file::Limits, findings: &mut Findings) -> Limits {
    let default = Limits::default();
    let proxies = written.proxies.as_ref();
    let proxies = proxies.map_or(default.proxies, |written| networks(written, findings));
    let mut count = |key, least, written: &Option<_>, default| {
        value::count(key, least, written.as_ref(), default, findings)
    };
    Limits {
        sessions: count("sessions", 1, &written.sessions, default.sessions),
        streams: count("streams", 1, &written.streams, default.streams),
        connections: count("connections", 1, &written.connections, default.connections),
        children: count("children", 1, &written.children, default.children),
        connections_per_address: count(
            "connections_per_address",
            1,
            &written.connections_per_address,
            default.connections_per_address,
        ),
        proxies,
        body_bytes: count(
            "body_bytes",
            SMALLEST_BODY,
            &written.body_bytes,
            default.body_bytes,
        ),
        session_idle: value::duration(
            "session_idle",
            written.session_idle.as_ref(),
            default.session_idle,
            findings,
        ),
        session_max_age: value::optional_duration(
            "session_max_age",
            written.session_max_age.as_ref(),
            findings,
        ),
    }
}

fn networks(written: &Texts, findings: &mut Findings) -> Vec<Network> {
    let mut networks = Vec::new();
    for text in written.get_ref() {
        match text.get_ref().parse() {
            Ok(network) => networks.push(network),
            Err(error) => findings.add(
                text.span(),
                format!("`proxies` has something in it that is {error}"),
                "write an address or a network, such as `10.0.0.0/8`",
            ),
        }
    }
    networks
}
