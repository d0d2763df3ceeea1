//! What can be wrong with a server: what it is, why it matters, and what to do about it.

use http::StatusCode;

use super::report::{Finding, Severity, UnknownId};
use super::trouble::Trouble;
use crate::upstream::UpstreamError;

fn problem(id: &'static str, what: impl Into<String>, why: &str, advice: &str) -> Finding {
    Finding {
        severity: Severity::Problem,
        id,
        what: what.into(),
        why: why.to_owned(),
        advice: advice.to_owned(),
    }
}

fn remark(id: &'static str, what: impl Into<String>, why: &str, advice: &str) -> Finding {
    Finding {
        severity: Severity::Remark,
        ..problem(id, what, why, advice)
    }
}

// --- No session was opened.

/// Why `initialize` opened no session.
pub(super) fn not_opened(trouble: &Trouble, is_http: bool) -> Finding {
    let what = trouble.to_string();
    match trouble {
        Trouble::Failed(UpstreamError::Process(_)) => problem(
            "process_failed",
            what,
            "Bowline starts one process for each session, and this one did not get as far as a session",
            "run the command in a shell; Bowline passes on only a few variables of its environment, so name what \
             it needs in `env`",
        ),
        Trouble::Failed(error) if error.is_absence() => problem(
            "unreachable",
            what,
            "nothing can be sent to it",
            "check the address, and that the server runs and accepts connections from this machine",
        ),
        Trouble::Failed(UpstreamError::NoAnswer(_)) => problem(
            "no_answer",
            what,
            "it accepts connections, and does not answer as an HTTP/1.1 server does",
            "check that the address and the scheme (http or https) are right",
        ),
        Trouble::Failed(UpstreamError::Redirected(_) | UpstreamError::TooManyRedirects(_)) => {
            problem(
                "redirect",
                what,
                "a redirect to another origin would carry credentials there, so none is followed",
                "use the address that it redirects to",
            )
        }
        Trouble::Failed(UpstreamError::Refused(StatusCode::FORBIDDEN)) => problem(
            "forbidden",
            what,
            "the server knows who asks, or where from, and does not allow it",
            "give credentials that it accepts (`--header`), or allow this host at the server",
        ),
        Trouble::NotMcp(..) => problem(
            "not_mcp",
            what,
            "an MCP server answers `initialize` with JSON or a stream of events",
            "check the path of the URL: it is often /mcp",
        ),
        Trouble::Refused(refusal) if refusal.status == StatusCode::OK => problem(
            "initialize_refused",
            what,
            "no client can open a session",
            "read the server's log: it answered, and refused",
        ),
        Trouble::Refused(_) if is_http => problem(
            "initialize_refused",
            what,
            "no client can open a session",
            "check the path of the URL (it is often /mcp), and read the server's log",
        ),
        _ => problem(
            "bad_initialize",
            what,
            "Bowline does not pass on what is not MCP",
            "report it to the server's maintainers",
        ),
    }
}

/// The time was over before a session was open.
pub(super) fn silent(is_http: bool) -> Finding {
    let what = "the server did not answer `initialize` in time";
    let advice = match is_http {
        true => "read the server's log; a slow server may need a longer `--timeout`",
        false => {
            "run the command in a shell, and see what it waits for; a slow one needs a longer `--timeout`"
        }
    };
    problem("silent", what, "a client would wait in vain", advice)
}

pub(super) fn modern_only() -> Finding {
    problem(
        "modern_only",
        "it speaks only the revision without sessions (2026-07-28)",
        "Bowline keeps sessions, and does not speak that revision to servers yet",
        "switch the sessions of the server on, if it can do both",
    )
}

pub(super) fn http_sse() -> Finding {
    problem(
        "http_sse",
        "this is the older transport, HTTP+SSE (2024-11-05), which is not found out by itself here",
        "the server does not answer 400, 404 or 405 to streamable HTTP, or another transport is configured",
        "configure `transport = \"sse\"`, or use the server's streamable HTTP endpoint, often /mcp instead of /sse",
    )
}

// --- Signing in.

pub(super) fn credentials_refused() -> Finding {
    problem(
        "credentials_refused",
        "the server answered 401 to the credentials that are configured",
        "nothing but a sign-in was tried",
        "correct the header; without one, the probe looks for OAuth metadata",
    )
}

pub(super) fn no_sign_in(error: &str) -> Finding {
    problem(
        "no_sign_in",
        format!("the server answered 401, and a sign-in is not possible: {error}"),
        "Bowline finds out from OAuth metadata where people sign in",
        "give a token with `--header 'Authorization: Bearer ${TOKEN}'`, or let the server publish its metadata \
         (RFC 9728 and RFC 8414)",
    )
}

pub(super) fn no_registration() -> Finding {
    problem(
        "no_registration",
        "the authorization server registers no clients by itself",
        "Bowline needs a client id to sign people in",
        "register a client there, and write its id into `client_id` of `[servers.NAME.oauth]`",
    )
}

pub(super) fn sign_in_needed(server: &str) -> Finding {
    remark(
        "sign_in_needed",
        "it demands a sign-in, so nothing behind that was examined",
        "each caller signs in once; Bowline refreshes the token",
        &format!(
            "sign in with `bowline login {server}` and probe again; configure `[servers.NAME.oauth]`"
        ),
    )
}

pub(super) fn no_resource_metadata() -> Finding {
    remark(
        "no_resource_metadata",
        "it publishes no protected resource metadata (RFC 9728)",
        "the authorization server was guessed from the server's own address, as before 2025-06-18",
        "let the server publish /.well-known/oauth-protected-resource",
    )
}

// --- A session was opened.

pub(super) fn malformed_initialize() -> Finding {
    remark(
        "malformed_initialize",
        "its answer to `initialize` is not as the protocol says",
        "strict clients refuse it; Bowline passes it on",
        "report it to the server's maintainers",
    )
}

pub(super) fn no_server_info() -> Finding {
    remark(
        "no_server_info",
        "its answer to `initialize` has no `serverInfo`",
        "strict clients refuse it; Bowline passes it on",
        "report it to the server's maintainers",
    )
}

pub(super) fn odd_version(version: &str) -> Finding {
    remark(
        "odd_version",
        format!("it answered with protocol version {version}, which the probe does not know"),
        "clients that do not know it disconnect",
        "nothing, if your clients do",
    )
}

pub(super) fn not_confirmed(error: &str) -> Finding {
    remark(
        "not_confirmed",
        format!("it did not accept `notifications/initialized`: {error}"),
        "the protocol requires it after `initialize`, and strict clients give up",
        "report it to the server's maintainers",
    )
}

pub(super) fn ping_failed(error: &str) -> Finding {
    remark(
        "ping_failed",
        format!("a ping failed: {error}"),
        "Bowline pings to find out whether a session still lives; any answer would do",
        "let the server answer `ping`, as the protocol requires",
    )
}

pub(super) fn not_sticky() -> Finding {
    problem(
        "not_sticky",
        "it knew its session at one request, and not at another",
        "replicas are behind a load balancer that is not sticky: requests of a session reach replicas that do not have it",
        "have the load balancer send all requests of a session to the same replica (by a cookie, or by \
         Mcp-Session-Id), or configure the replicas as `endpoints`",
    )
}

pub(super) fn answers_nothing() -> Finding {
    problem(
        "answers_nothing",
        "it opened a session, and answered no request in it",
        "every call of a client would fail",
        "read the server's log; behind a load balancer, check that a session's requests reach the same replica",
    )
}

pub(super) fn list_failed(what: &str, error: &str) -> Finding {
    remark(
        "list_failed",
        format!("its list of {what} could not be read: {error}"),
        "it says that it has this capability, and clients ask for the list",
        "report it to the server's maintainers",
    )
}

pub(super) fn list_endless(what: &str, pages: usize) -> Finding {
    remark(
        "list_endless",
        format!("its list of {what} goes on after {pages} pages"),
        "clients read lists to their end",
        "check that the server's last page has no `nextCursor`",
    )
}

pub(super) fn loss_unrecognized(answer: &UnknownId) -> Finding {
    let said = answer.text.as_ref().map(|text| format!(" ({text})"));
    let what = format!(
        "it answers {} to a session id that it does not know{}, where the protocol says 404",
        answer.status,
        said.unwrap_or_default(),
    );
    let why =
        "Bowline would not notice that the server lost a session, and clients would get this error";
    match &answer.rule {
        Some(rule) => remark(
            "loss_unrecognized",
            what,
            why,
            &format!("write in the configuration:\n[[servers.NAME.session_lost]]\n{rule}"),
        ),
        None => remark(
            "loss_unrecognized",
            what,
            why,
            "let the server answer 404; there is nothing in its answer that a rule could tell it by",
        ),
    }
}

pub(super) fn ids_ignored() -> Finding {
    remark(
        "ids_ignored",
        "it issues session ids, and accepts ids that it did not issue",
        "when it restarts, clients keep working with a session that has lost its state, and nobody notices",
        "let the server answer 404 to unknown ids, or issue none",
    )
}

pub(super) fn end_refused(status: u16) -> Finding {
    remark(
        "end_refused",
        format!("it answers {status} to the DELETE that ends a session"),
        "sessions that clients ended stay at the server until it expires them",
        "let the server answer 2xx, or 405 if it does not support it",
    )
}

pub(super) fn end_ignored() -> Finding {
    remark(
        "end_ignored",
        "it accepts the DELETE of a session, and goes on to serve it",
        "sessions that clients ended stay at the server",
        "report it to the server's maintainers",
    )
}

pub(super) fn cookie_not_sent(name: &str) -> Finding {
    remark(
        "cookie_not_sent",
        format!("the cookie {name} does not get back to the server"),
        "if a load balancer set it, the next request of the session may reach another replica",
        "check its attributes: Secure means https, Domain and Path have to match the URL",
    )
}

pub(super) fn out_of_time(step: super::Step) -> Finding {
    remark(
        "out_of_time",
        format!("the time was over while {step}"),
        "what comes after that was not examined",
        "give more time with `--timeout`",
    )
}
