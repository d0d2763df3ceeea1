//! How Bowline signs in at servers, as meant. A key that means nothing with the flow is refused:
//! whoever wrote it expects something of it.

use std::ops::Range;

use http::Uri;
use toml::Spanned;

use super::value;
use crate::config::read::{Secret, Texts};
use crate::config::report::Findings;
use crate::config::{
    Client, ClientSecret, Config, Flags, Flow, OAuth, RedirectUri, ServerOAuth, SignInHost,
    SignInProblem, UrlProblem, check_meta_prefix, file, url,
};

const PUBLIC_URL: &str = "write it like `https://gw.example.com`";
const ISSUER: &str = "write it as the authorization server does, like `https://login.example.com`";
const ORIGIN: &str = "write scheme, host and port alone, like `https://token.example.com`";
const UNREDIRECTED: &str = "the flow `drive` needs a `redirect_uri`, and there is none";
const REDIRECT: &str = "add `redirect_uri = \"https://app.example/cb\"`, here or in `[oauth]`";
const METADATA_URL: &str = "write it like `https://gw.example.com/client.json`";

/// Whether the file says what signing in needs of the rest of the configuration, right or wrong.
pub(super) struct SigningIn {
    servers: Vec<(String, Range<usize>)>,
    has_callers: bool,
    has_public_url: bool,
}

// === impl SigningIn ===

impl SigningIn {
    /// What the file has about it.
    pub(super) fn of(file: &file::File) -> Self {
        let servers = file.servers.iter().filter_map(|server| {
            let oauth = server.oauth.as_ref()?;
            Some((server.name.get_ref().clone(), oauth.place.clone()))
        });
        Self {
            servers: servers.collect(),
            has_callers: !file.callers.is_empty(),
            has_public_url: file.oauth.public_url.is_some(),
        }
    }

    /// Refuses a configuration as a whole with which nobody could sign in, or others could.
    pub(super) fn check(&self, config: &Config, findings: &mut Findings) {
        for (name, problem) in config.sign_in_problems() {
            // What is there and wrong was complained of already.
            let is_there = match problem {
                SignInProblem::NoCallers => self.has_callers,
                SignInProblem::NoPublicUrl => self.has_public_url,
                SignInProblem::OneUrl => false,
            };
            let mut servers = self.servers.iter();
            let server = servers.find(|(server, _)| *server == name.as_ref());
            if let (false, Some((_, place))) = (is_there, server) {
                findings.add(place.clone(), problem.what(), problem.help());
            }
        }
    }
}

/// What holds for all servers; what is wrong goes to `findings`.
pub(super) fn check(written: &file::OAuth, flags: &Flags, findings: &mut Findings) -> OAuth {
    let default = OAuth::default();
    let public_url = written.public_url.as_ref();
    let redirect_uri = redirect_uri(written.redirect_uri.as_ref(), findings);
    let (deadline, hold) = (written.deadline.as_ref(), written.hold.as_ref());
    let host = written
        .host
        .as_ref()
        .and_then(|host| self::host(host, findings));
    let host = flags.host.or(host).unwrap_or_default();
    let meta_prefix = written.meta_prefix.as_ref();
    let meta_prefix = meta_prefix.map(|prefix| self::meta_prefix(prefix, findings));
    OAuth {
        public_url: public_url.and_then(|url| self::public_url(url, findings)),
        flow: flags.flow.or_else(|| flow_of_all(written, flags, findings)),
        redirect_uri: flags.redirect_uri.clone().or(redirect_uri),
        host,
        deadline: value::duration("deadline", deadline, default.deadline, findings),
        hold: value::duration("hold", hold, default.hold, findings),
        meta_prefix: flags
            .meta_prefix
            .clone()
            .or(meta_prefix)
            .unwrap_or_else(|| host.meta_prefix().to_owned()),
    }
}

/// The flow of all servers, as it is written. A redirect URI on the command line is for `drive`, and wins.
fn flow_of_all(written: &file::OAuth, flags: &Flags, findings: &mut Findings) -> Option<Flow> {
    let place = written.flow.as_ref()?;
    let flow = flow(place, findings)?;
    match (flow, &written.redirect_uri) {
        _ if flags.redirect_uri.is_some() => return None,
        (Flow::Drive, None) => findings.add(place.span(), UNREDIRECTED, REDIRECT),
        (Flow::Managed | Flow::ClientDriven, Some(uri)) => misplaced(flow, uri, findings),
        _ => {}
    }
    Some(flow)
}

/// How Bowline signs in at one server; what is wrong goes to `findings`.
pub(super) fn check_server(
    written: &file::ServerOAuth,
    all: &OAuth,
    findings: &mut Findings,
) -> ServerOAuth {
    let own = redirect_uri(written.redirect_uri.as_ref(), findings);
    let chosen = written
        .flow
        .as_ref()
        .and_then(|flow| self::flow(flow, findings));
    if let (Some(flow @ (Flow::Managed | Flow::ClientDriven)), Some(uri)) =
        (chosen, &written.redirect_uri)
    {
        misplaced(flow, uri, findings);
    }
    let is_redirected = written.redirect_uri.is_some() || all.redirect_uri.is_some();
    if let (Some(Flow::Drive), Some(flow), false) = (chosen, &written.flow, is_redirected) {
        findings.add(flow.span(), UNREDIRECTED, REDIRECT);
    }
    let flow = chosen.unwrap_or(match &written.redirect_uri {
        Some(_) => Flow::Drive,
        None => all.server_flow(),
    });
    let redirect_uri = own.or_else(|| all.redirect_uri.clone());
    ServerOAuth {
        flow,
        client: client(written, findings),
        scopes: scopes(written.scopes.as_ref(), findings),
        redirect_uri: redirect_uri.filter(|_| flow == Flow::Drive),
        client_metadata_url: client_metadata_url(written, findings),
        issuer: issuer(written, findings),
        endpoints_elsewhere: endpoints_elsewhere(written.endpoints_elsewhere.as_ref(), findings),
        allow_private: written.allow_private.unwrap_or_default(),
        several_origins: written.several_origins.unwrap_or_default(),
        unlisted_pkce: written.unlisted_pkce.unwrap_or_default(),
    }
}

/// Refuses endpoints of several origins, each of which would see what the callers were granted at the
/// first, unless the operator says that they are one server.
pub(super) fn refuse_several_origins(
    endpoints: &[Uri],
    place: Range<usize>,
    oauth: &ServerOAuth,
    findings: &mut Findings,
) {
    let mut origins = endpoints.iter().map(url::origin);
    let first = origins.next();
    if !oauth.several_origins && origins.any(|origin| Some(origin) != first) {
        findings.add(
            place,
            "the server has `oauth` and endpoints of several origins, and each of them would get the tokens",
            "write `several_origins = true` in `oauth` if all of them are one server that may have the \
             same tokens, or name each as a server of its own",
        );
    }
}

/// Refuses a token in the headers of a server at which Bowline signs in: a request has one.
pub(super) fn refuse_authorization(headers: &[Secret], findings: &mut Findings) {
    let is_token = |header: &&Secret| header.name.get_ref().eq_ignore_ascii_case("authorization");
    if let Some(header) = headers.iter().find(is_token) {
        findings.add(
            header.name.span(),
            "the server has both an `Authorization` header and `oauth`, and a request can have only one token",
            "remove the header if callers sign in, or `oauth` if all of them share this token",
        );
    }
}

fn redirect_uri(written: Option<&Spanned<String>>, findings: &mut Findings) -> Option<RedirectUri> {
    let written = written?;
    let uri = written.get_ref().parse::<RedirectUri>();
    uri.inspect_err(|problem| findings.add(written.span(), problem.what(), problem.help()))
        .ok()
}

fn public_url(written: &Spanned<String>, findings: &mut Findings) -> Option<Uri> {
    let (what, help) = match url::parse(written.get_ref()) {
        Ok(url) if url.query().is_some() => (
            "`public_url` has a query, and Bowline appends the paths of its pages to it",
            PUBLIC_URL,
        ),
        Ok(url) if url.scheme_str() == Some("http") && !url::is_loopback(&url) => (
            "`public_url` is http and not on this machine, so others could read the code",
            "write `https://`, or `http://` only with 127.0.0.1, [::1] or localhost",
        ),
        Ok(url) => return Some(url),
        Err(UrlProblem::Fragment) => (
            "`public_url` has a fragment, and Bowline appends the paths of its pages to it",
            PUBLIC_URL,
        ),
        Err(problem) => (problem.what(), url_help(problem, PUBLIC_URL)),
    };
    findings.add(written.span(), what, help);
    None
}

fn client_metadata_url(written: &file::ServerOAuth, findings: &mut Findings) -> Option<String> {
    let url = written.client_metadata_url.as_ref()?;
    if written.client_id.is_some() {
        findings.add(
            url.span(),
            "there are both `client_id` and `client_metadata_url`, and each is the client's id",
            "keep one of them",
        );
    }
    let (what, help) = match url::parse(url.get_ref()) {
        Ok(uri) if uri.scheme_str() != Some("https") => {
            ("`client_metadata_url` is not https", METADATA_URL)
        }
        Ok(uri) if uri.path() == "/" => ("`client_metadata_url` has no path", METADATA_URL),
        Ok(uri)
            if uri
                .path()
                .split('/')
                .any(|part| part == "." || part == "..") =>
        {
            (
                "`client_metadata_url` has `.` or `..` in its path, which authorization servers refuse",
                METADATA_URL,
            )
        }
        Ok(_) => return Some(url.get_ref().clone()),
        Err(UrlProblem::Scheme) => ("`client_metadata_url` is not https", METADATA_URL),
        Err(problem) => (problem.what(), url_help(problem, METADATA_URL)),
    };
    findings.add(url.span(), what, help);
    None
}

/// The one authorization server that is asked. A secret is for one alone.
fn issuer(written: &file::ServerOAuth, findings: &mut Findings) -> Option<String> {
    let Some(issuer) = &written.issuer else {
        if let (Some(_), Some(secret)) = (&written.client_id, &written.client_secret) {
            findings.add(
                secret.span(),
                "there is a `client_secret` and no `issuer`, so whichever authorization server the \
                 server names would get it",
                "add the `issuer` that it is for, like `issuer = \"https://login.example.com\"`",
            );
        }
        return None;
    };
    let (what, help) = match url::parse(issuer.get_ref()) {
        Ok(url) if url.query().is_some() => ("the `issuer` has a query", ISSUER),
        Ok(_) => return Some(issuer.get_ref().clone()),
        Err(problem) => (problem.what(), url_help(problem, ISSUER)),
    };
    findings.add(issuer.span(), what, help);
    None
}

fn endpoints_elsewhere(written: Option<&Texts>, findings: &mut Findings) -> Vec<String> {
    let mut origins = Vec::new();
    for one in written.into_iter().flat_map(Spanned::get_ref) {
        let (what, help) = match url::parse(one.get_ref()) {
            Ok(url) if url.query().is_some() || url.path() != "/" => {
                ("an origin has no path and no query", ORIGIN)
            }
            Ok(_) if origins.contains(one.get_ref()) => {
                ("the origin is given twice", "keep one of them")
            }
            Ok(_) => {
                origins.push(one.get_ref().clone());
                continue;
            }
            Err(problem) => (problem.what(), url_help(problem, ORIGIN)),
        };
        findings.add(one.span(), what, help);
    }
    origins
}

/// What to do about a URL that is not a server's.
fn url_help(problem: UrlProblem, example: &'static str) -> &'static str {
    match problem {
        UrlProblem::NotAbsolute | UrlProblem::NoHost | UrlProblem::Scheme => example,
        UrlProblem::Userinfo => "remove it; everybody who signs in sees this URL",
        _ => problem.help(),
    }
}

fn meta_prefix(written: &Spanned<String>, findings: &mut Findings) -> String {
    if let Err(problem) = check_meta_prefix(written.get_ref()) {
        findings.add(written.span(), problem.what(), problem.help());
    }
    written.get_ref().clone()
}

fn host(written: &Spanned<String>, findings: &mut Findings) -> Option<SignInHost> {
    let host = SignInHost::named(written.get_ref());
    if host.is_none() {
        let help = "write `docker-agent`, or take it out: every other host needs nothing special";
        findings.add(written.span(), "unknown `host`", help);
    }
    host
}

fn flow(written: &Spanned<String>, findings: &mut Findings) -> Option<Flow> {
    let flow = Flow::named(written.get_ref());
    if flow.is_none() {
        findings.add(
            written.span(),
            "unknown `flow`",
            "write `managed`, `client-driven` or `drive`",
        );
    }
    flow
}

/// A redirect URI with a flow that does not use it.
fn misplaced(flow: Flow, uri: &Spanned<String>, findings: &mut Findings) {
    let reason = match flow {
        Flow::ClientDriven => "the client has its own",
        Flow::Managed | Flow::Drive => {
            "the browser returns to Bowline's own page, under `public_url` in `[oauth]`"
        }
    };
    findings.add(
        uri.span(),
        format!(
            "`redirect_uri` means nothing with `{}`: {reason}",
            flow.name()
        ),
        "write `flow = \"drive\"`, or take it out",
    );
}

fn client(written: &file::ServerOAuth, findings: &mut Findings) -> Option<Client> {
    let id = credential("client_id", written.client_id.as_ref(), findings);
    let secret = credential("client_secret", written.client_secret.as_ref(), findings);
    if let (None, Some(secret)) = (&written.client_id, &written.client_secret) {
        findings.add(
            secret.span(),
            "there is a `client_secret` and no `client_id`",
            "add the `client_id` that it belongs to, or take it out",
        );
    }
    Some(Client {
        id: id?,
        secret: secret.map(ClientSecret),
    })
}

/// What an authorization server issued: something, all of it printable (RFC 6749, appendix A).
fn credential(
    key: &str,
    written: Option<&Spanned<String>>,
    findings: &mut Findings,
) -> Option<String> {
    let written = written?;
    let text = written.get_ref();
    let (message, help) = if text.is_empty() {
        (
            format!("`{key}` is empty"),
            "give it a value, or take it out",
        )
    } else if !text
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        (
            format!("`{key}` has a character that it cannot have"),
            "remove line breaks and other control characters; one is easily copied along",
        )
    } else {
        return Some(text.clone());
    };
    findings.add(written.span(), message, help);
    None
}

fn scopes(written: Option<&Texts>, findings: &mut Findings) -> Vec<String> {
    let mut scopes = Vec::new();
    for one in written.into_iter().flat_map(Spanned::get_ref) {
        let scope = one.get_ref();
        // RFC 6749, 3.3.
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let (message, help) = if scope.is_empty() {
            (
                "a scope is empty",
                "write what the server calls it, or take it out",
            )
        } else if scope.contains(' ') {
            (
                "a scope has a space in it",
                "write each scope by itself, such as `[\"files:read\", \"files:write\"]`",
            )
        } else if !scope.bytes().all(allowed) {
            (
                "a scope has a character that scopes cannot have",
                "use only ASCII letters, digits and punctuation, without `\"` and `\\`",
            )
        } else if scopes.contains(scope) {
            ("the scope is given twice", "keep one of them")
        } else {
            scopes.push(scope.clone());
            continue;
        };
        findings.add(one.span(), message, help);
    }
    scopes
}
