//! A server as meant: where it is, how it is reached, and its health checks.

use std::path::Path;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use toml::Spanned;

use super::{command, headers, oauth, recovery, union, value};
use crate::config::read::Texts;
use crate::config::report::Findings;
use crate::config::{
    Certificates, Environment, Health, OAuth, Server, ServerName, Target, Transport, UrlProblem,
    file, url,
};

/// The shortest time after which idle sessions are pinged.
const LEAST_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// A server and its name; `None` when one of the two, or the place, cannot be used.
pub(super) fn check(
    written: file::Server,
    oauth_of_all: &OAuth,
    environment: &Environment<'_>,
    findings: &mut Findings,
) -> Option<(ServerName, Server)> {
    let name = written.name.get_ref().parse::<ServerName>();
    if let Err(problem) = &name {
        findings.add(written.name.span(), problem.what(), problem.help());
    }
    let url = written.url.and_then(|written| one_url(&written, findings));
    let place = written.endpoints.as_ref().map(Spanned::span);
    let endpoints = written
        .endpoints
        .and_then(|written| endpoints(&written, findings));
    let is_process = written.command.is_some();
    command::refuse_misplaced(&written.misplaced, is_process, findings);
    let command = written
        .command
        .and_then(|written| command::check(written, environment, findings));
    let way = match (url, endpoints, command) {
        (Some(url), ..) => Some(Target::Url(url)),
        (None, Some(endpoints), _) => Some(Target::Endpoints(endpoints)),
        (None, None, Some(command)) => Some(Target::Command(command)),
        (None, None, None) => None,
    };
    let ca = written.ca_file.as_ref();
    let ca = ca.and_then(|written| ca_file(written, way.as_ref(), findings));
    let oauth = written.oauth.map(|oauth| {
        oauth::refuse_authorization(&written.headers, findings);
        oauth::check_server(&oauth, oauth_of_all, findings)
    });
    if let (Some(Target::Endpoints(endpoints)), Some(place), Some(oauth)) = (&way, place, &oauth) {
        oauth::refuse_several_origins(endpoints, place, oauth, findings);
    }
    let headers = headers::check(written.headers, findings);
    let forward_headers = written.forward_headers.map(Spanned::into_inner);
    let forward_headers = headers::check_forwarded(forward_headers, &headers, findings);
    let timeout = written.connect_timeout.as_ref();
    let default = Server::CONNECT_TIMEOUT;
    let connect_timeout = value::duration("connect_timeout", timeout, default, findings);
    let call_timeout = written.call_timeout.as_ref();
    let call_timeout = value::optional_duration("call_timeout", call_timeout, findings);
    let health = health(&written.health, findings);
    let keep_alive = keep_alive(written.keep_alive.as_ref(), findings);
    let recovery = recovery::check(written.recovery, findings);
    let transport = transport(written.transport.as_ref(), findings);
    let list_timeout = written.list_timeout.as_ref();
    let default = Server::LIST_TIMEOUT;
    let prefix = written.prefix.as_ref();
    let tools = written.tools.as_ref();
    let server = Server {
        transport,
        headers,
        forward_headers,
        ca,
        connect_timeout,
        call_timeout,
        health,
        keep_alive,
        recovery,
        oauth,
        prefix: prefix.and_then(|written| union::prefix(written, findings)),
        required: written.required.unwrap_or_default(),
        list_timeout: value::duration("list_timeout", list_timeout, default, findings),
        tools: tools.and_then(|written| union::tools(written, findings)),
        ..Server::at(way?)
    };
    Some((name.ok()?, server))
}

fn keep_alive(written: Option<&Spanned<String>>, findings: &mut Findings) -> Option<Duration> {
    if written.is_some_and(|written| written.get_ref() == "off") {
        return None;
    }
    let time = value::duration("keep_alive", written, Server::KEEP_ALIVE, findings);
    if let (Some(written), true) = (written, time < LEAST_KEEP_ALIVE) {
        let help = "write less than the time after which the server ends idle sessions, such as `4m`, or `off`";
        findings.add(written.span(), "`keep_alive` must be at least 1s", help);
    }
    Some(time)
}

fn transport(written: Option<&Spanned<String>>, findings: &mut Findings) -> Transport {
    let Some(written) = written else {
        return Transport::default();
    };
    Transport::named(written.get_ref()).unwrap_or_else(|| {
        findings.add(
            written.span(),
            "`transport` is neither `auto`, `streamable-http` nor `sse`",
            "write `sse` for the older HTTP+SSE; `auto` finds out which of the two the server speaks",
        );
        Transport::default()
    })
}

fn one_url(written: &Spanned<String>, findings: &mut Findings) -> Option<Uri> {
    let report =
        |problem: &UrlProblem| findings.add(written.span(), problem.what(), problem.help());
    url::parse(written.get_ref()).inspect_err(report).ok()
}

fn endpoints(written: &Texts, findings: &mut Findings) -> Option<Vec<Uri>> {
    if written.get_ref().is_empty() {
        findings.add(
            written.span(),
            "`endpoints` is empty",
            "add at least one, such as `endpoints = [\"http://10.0.0.1:8000/mcp\"]`",
        );
        return None;
    }
    let mut endpoints = Vec::new();
    for one in written.get_ref() {
        let Some(uri) = one_url(one, findings) else {
            continue;
        };
        if endpoints.contains(&uri) {
            let problem = UrlProblem::Twice;
            findings.add(one.span(), problem.what(), problem.help());
        }
        endpoints.push(uri);
    }
    Some(endpoints)
}

fn ca_file(
    written: &Spanned<String>,
    way: Option<&Target>,
    findings: &mut Findings,
) -> Option<Certificates> {
    let urls = way.map_or(&[][..], Target::urls);
    if !urls.is_empty() && urls.iter().all(|url| url.scheme_str() != Some("https")) {
        findings.add(
            written.span(),
            "`ca_file` means nothing without TLS",
            "write `https://` in the `url`, or take it out",
        );
        return None;
    }
    let read = Certificates::read(Path::new(written.get_ref()));
    read.inspect_err(|error| {
        let help = "give a file with the authority's certificate, `-----BEGIN CERTIFICATE-----`";
        findings.add(written.span(), format!("`ca_file` {error}"), help);
    })
    .ok()
}

fn health(written: &file::Health, findings: &mut Findings) -> Health {
    let default = Health::default();
    Health {
        every: value::duration("every", written.every.as_ref(), default.every, findings),
        get: written
            .get
            .as_ref()
            .and_then(|written| path(written, findings)),
    }
}

fn path(written: &Spanned<String>, findings: &mut Findings) -> Option<PathAndQuery> {
    let text = written.get_ref();
    // A fragment would be dropped silently.
    let plain = text.starts_with('/') && !text.contains('#');
    let path = text.parse().ok().filter(|_| plain);
    if path.is_none() {
        findings.add(
            written.span(),
            "`get` is not a path",
            "write a path that starts with `/`, such as `/healthz`; host and port are the endpoint's",
        );
    }
    path
}
