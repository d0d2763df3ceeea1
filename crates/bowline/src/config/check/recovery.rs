//! What happens when a server loses a session, as meant.

use std::time::Duration;

use http::StatusCode;
use toml::Spanned;

use super::value;
use crate::config::keys::STATUSES;
use crate::config::read::{OneOrMany, Texts};
use crate::config::report::Findings;
use crate::config::{Fingerprint, OnLoss, Recovery, Replay, file};

/// The least time in which a session can be recovered.
const LEAST_BUDGET: Duration = Duration::from_secs(1);

/// The recovery of a server; what is wrong goes to `findings`.
pub(super) fn check(written: file::Recovery, findings: &mut Findings) -> Recovery {
    let default = Recovery::default();
    let drain_timeout = written.drain_timeout.as_ref();
    let fingerprints = written.fingerprints.into_iter();
    Recovery {
        budget: budget(written.budget.as_ref(), default.budget, findings),
        on_loss: on_loss(written.on_loss.as_ref(), findings),
        replay: replay(written.replay, findings),
        drain_timeout: value::duration(
            "drain_timeout",
            drain_timeout,
            default.drain_timeout,
            findings,
        ),
        fingerprints: fingerprints
            .filter_map(|one| fingerprint(one, findings))
            .collect(),
    }
}

fn budget(
    written: Option<&Spanned<String>>,
    default: Duration,
    findings: &mut Findings,
) -> Duration {
    let budget = value::duration("recovery_budget", written, default, findings);
    if let (Some(written), true) = (written, budget < LEAST_BUDGET) {
        findings.add(
            written.span(),
            "`recovery_budget` must be at least 1s",
            "give the server time to restart, such as `30s`; \
             `on_session_loss = \"tell\"` switches recovery off",
        );
    }
    budget
}

fn on_loss(written: Option<&Spanned<String>>, findings: &mut Findings) -> OnLoss {
    let Some(written) = written else {
        return OnLoss::default();
    };
    match written.get_ref().as_str() {
        "recover" => OnLoss::Recover,
        "tell" => OnLoss::Tell,
        _ => {
            findings.add(
                written.span(),
                "`on_session_loss` is neither `recover` nor `tell`",
                "write `recover` to recover lost sessions, or `tell` to answer 404 and let clients re-initialize",
            );
            OnLoss::default()
        }
    }
}

fn replay(written: Option<OneOrMany>, findings: &mut Findings) -> Replay {
    let word = match written {
        None => return Replay::default(),
        Some(OneOrMany::Many(names)) => return Replay::Tools(tools(names, findings)),
        Some(OneOrMany::One(word)) => word,
    };
    match word.get_ref().as_str() {
        "safe" => Replay::Safe,
        "never" => Replay::Never,
        _ => {
            findings.add(
                word.span(),
                "`replay` is neither `safe` nor `never`, nor a list of tools",
                "write `safe` or `never`, or put the names of tools in brackets, such as \
                 `[\"search\"]`",
            );
            Replay::default()
        }
    }
}

fn tools(written: Texts, findings: &mut Findings) -> Vec<String> {
    // It would mean `safe`, and reads like `never`.
    if written.get_ref().is_empty() {
        let help = "write `safe` or `never`, or name at least one tool";
        findings.add(written.span(), "`replay` is an empty list", help);
    }
    let mut names = Vec::new();
    for one in written.into_inner() {
        let place = one.span();
        let name = one.into_inner();
        if name.is_empty() {
            let help = "write the tool's name as the server lists it";
            findings.add(place, "the name of a tool is empty", help);
        } else if names.contains(&name) {
            findings.add(place, "the tool is given twice", "keep one of them");
        } else {
            names.push(name);
        }
    }
    names
}

/// A fingerprint; `None` when it cannot be used.
fn fingerprint(written: file::Fingerprint, findings: &mut Findings) -> Option<Fingerprint> {
    let code = written.code.and_then(|code| self::code(&code, findings));
    let text = written.text.and_then(|text| self::text(text, findings));
    let place = written.status.as_ref()?.span();
    let status = status(&written.status?, findings)?;
    if needs_more(status) && !written.narrowed {
        findings.add(
            place,
            "this status alone is not enough: every such response would mean a lost session",
            "add the `code` of the JSON-RPC error, or `text` that the response contains",
        );
    }
    Some(Fingerprint { status, code, text })
}

fn status(written: &Spanned<i128>, findings: &mut Findings) -> Option<StatusCode> {
    let (from, to) = STATUSES;
    let number = *written.get_ref();
    let within = (i128::from(from)..=i128::from(to)).contains(&number);
    let status = u16::try_from(number).ok().filter(|_| within);
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    if status.is_none() {
        findings.add(
            written.span(),
            format!("`status` must be from {from} to {to}"),
            "write the HTTP status of the response, such as 400",
        );
    }
    if status == Some(StatusCode::NOT_FOUND) {
        findings.add(
            written.span(),
            "404 needs no fingerprint: by the protocol it always means a lost session",
            "remove this entry",
        );
        return None;
    }
    status
}

/// Whether answers with this status are usual, so that it says nothing of the session by itself.
fn needs_more(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::UNAUTHORIZED || status.is_server_error()
}

fn code(written: &Spanned<i128>, findings: &mut Findings) -> Option<i64> {
    let code = i64::try_from(*written.get_ref()).ok();
    if code.is_none() {
        findings.add(
            written.span(),
            "`code` is not an error code: it does not fit in 64 bits",
            "write the code of the JSON-RPC error, such as -32000",
        );
    }
    code
}

fn text(written: Spanned<String>, findings: &mut Findings) -> Option<String> {
    if written.get_ref().is_empty() {
        findings.add(
            written.span(),
            "`text` is empty, so every response contains it",
            "write some of the error's message, or leave it out",
        );
        return None;
    }
    Some(written.into_inner())
}
