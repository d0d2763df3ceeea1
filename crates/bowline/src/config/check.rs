//! The configuration as meant: every value of the file checked against the rules.
//!
//! The second of two stages. A value that breaks a rule is reported and its default stands in,
//! so that the rest is checked as well; the result counts only if nothing was reported.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;

use super::file::{self, File};
use super::headers;
use super::report::Findings;
use super::{Config, Limits, Server, ServerName, StoreKind, Way, url};

/// The longest duration, one year: longer ones are slips, and a deadline in the far future can
/// overflow the clock.
const LONGEST: Duration = Duration::from_secs(31_557_600);

/// The smallest `body_bytes` with which a client can still start a session.
const SMALLEST_BODY: i128 = 1024;

/// The file as meant; what is wrong goes to `findings`.
pub(super) fn check(file: File, findings: &mut Findings) -> Config {
    let (listen, admin) = addresses(&file, findings);
    Config {
        listen,
        admin,
        store: store(file.store_kind, findings),
        limits: limits(&file.limits, findings),
        servers: servers(file.servers, findings),
        ..Config::default()
    }
}

fn addresses(file: &File, findings: &mut Findings) -> (SocketAddr, Option<SocketAddr>) {
    let Config { listen, admin, .. } = Config::default();
    let written = file.listen.as_ref();
    let listen = written.map_or(Some(listen), |written| {
        let help = "write an IP address and a port, such as `127.0.0.1:6270`";
        address("listen", help, written, findings)
    });
    let admin = match &file.admin {
        None => admin,
        Some(written) if written.get_ref() == "off" => None,
        Some(written) => {
            let help = "write an IP address and a port, such as `127.0.0.1:6271`, or `off`";
            address("admin", help, written, findings)
        }
    };
    let taken = listen.filter(|listen| listen.port() != 0 && admin == Some(*listen));
    if let (Some(taken), Some(place)) = (taken, file.admin.as_ref().or(written)) {
        findings.add(
            place.span(),
            format!("`listen` and `admin` are the same address, {taken}"),
            "give one of them another port, or set `admin = \"off\"`",
        );
    }
    (listen.unwrap_or(Config::default().listen), admin)
}

fn address(
    key: &str,
    help: &str,
    written: &Spanned<String>,
    findings: &mut Findings,
) -> Option<SocketAddr> {
    let address = written.get_ref().parse().ok();
    if address.is_none() {
        let message = format!("`{key}` is not an IP address with a port");
        findings.add(written.span(), message, help);
    }
    address
}

fn store(written: Option<Spanned<String>>, findings: &mut Findings) -> StoreKind {
    match written {
        Some(kind) if kind.get_ref() != "memory" => findings.add(
            kind.span(),
            "there is no such kind of store",
            "write `kind = \"memory\"`, the only kind there is",
        ),
        _ => {}
    }
    StoreKind::Memory
}

fn limits(written: &file::Limits, findings: &mut Findings) -> Limits {
    let default = Limits::default();
    let mut at_least = |key, least, written: &Option<Spanned<i128>>, default| {
        let written = written.as_ref();
        written.map_or(default, |number| {
            count(key, least, number, default, findings)
        })
    };
    Limits {
        sessions: at_least("sessions", 1, &written.sessions, default.sessions),
        streams: at_least("streams", 1, &written.streams, default.streams),
        body_bytes: at_least(
            "body_bytes",
            SMALLEST_BODY,
            &written.body_bytes,
            default.body_bytes,
        ),
        session_idle: written
            .session_idle
            .as_ref()
            .map_or(default.session_idle, |written| {
                duration("session_idle", written, default.session_idle, findings)
            }),
    }
}

fn count(
    key: &str,
    least: i128,
    written: &Spanned<i128>,
    default: usize,
    findings: &mut Findings,
) -> usize {
    let message = if *written.get_ref() < least {
        format!("`{key}` must be at least {least}")
    } else {
        match usize::try_from(*written.get_ref()) {
            Ok(count) => return count,
            Err(_) => format!("`{key}` is too large: it must fit in {} bits", usize::BITS),
        }
    };
    let help = format!("leave it out for the default, {default}");
    findings.add(written.span(), message, help);
    default
}

fn duration(
    key: &str,
    written: &Spanned<String>,
    default: Duration,
    findings: &mut Findings,
) -> Duration {
    let message = match humantime::parse_duration(written.get_ref()) {
        Err(_) => format!("`{key}` is not a duration"),
        Ok(Duration::ZERO) => format!("`{key}` must be more than zero"),
        Ok(duration) if duration > LONGEST => format!("`{key}` is longer than a year"),
        Ok(duration) => return duration,
    };
    let help = "write a number and a unit, such as `500ms`, `10s`, `30m` or `2h`";
    findings.add(written.span(), message, help);
    default
}

fn servers(written: Vec<file::Server>, findings: &mut Findings) -> BTreeMap<ServerName, Server> {
    let mut servers = BTreeMap::new();
    for server in written {
        let name = server.name.get_ref().parse::<ServerName>();
        if let Err(problem) = &name {
            findings.add(server.name.span(), problem.what(), problem.help());
        }
        let uri = server.url.and_then(|written| {
            let uri = url::parse(written.get_ref());
            let problem = |problem: &super::UrlProblem| {
                findings.add(written.span(), problem.what(), problem.help());
            };
            uri.inspect_err(problem).ok()
        });
        let headers = headers::check(server.headers, findings);
        let default = Server::CONNECT_TIMEOUT;
        let connect_timeout = server.connect_timeout.map_or(default, |written| {
            duration("connect_timeout", &written, default, findings)
        });
        if let (Ok(name), Some(url)) = (name, uri) {
            let server = Server {
                headers,
                connect_timeout,
                ..Server::at(Way::Url(url))
            };
            servers.insert(name, server);
        }
    }
    servers
}
