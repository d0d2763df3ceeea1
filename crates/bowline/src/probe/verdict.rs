//! What the facts of a report mean: findings, what Bowline does with the server, and the verdict.

use super::findings;
use super::report::{Finding, Listing, Report, Severity, Transport, Verdict};

/// Completes a report.
pub(super) fn judge(report: &mut Report) {
    let found = derived(report);
    report.findings.extend(found);
    let is_problem = |finding: &Finding| finding.severity == Severity::Problem;
    // Problems first, each kind in the order in which it was found.
    report.findings.sort_by_key(|finding| !is_problem(finding));
    report.verdict = match report.findings.first() {
        None => Verdict::Works,
        Some(first) if is_problem(first) => Verdict::DoesNotWork,
        Some(_) => Verdict::WorksWithRemarks,
    };
    if report.verdict != Verdict::DoesNotWork && !report.versions.is_empty() {
        report.outlook = outlook(report);
    }
}

fn derived(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    if answers_nothing(report) {
        found.push(findings::answers_nothing());
    }
    if let Some(sessions) = &report.sessions {
        match &sessions.unknown_id {
            Some(answer) if answer.status == 200 && answer.code.is_none() => {
                found.push(findings::ids_ignored());
            }
            Some(answer) if !answer.is_recognized => {
                found.push(findings::loss_unrecognized(answer));
            }
            _ => {}
        }
        match (sessions.delete_status, sessions.after_delete_status) {
            (Some(200..=299), Some(200)) => found.push(findings::end_ignored()),
            (Some(200..=299 | 405), _) | (None, _) => {}
            (Some(status), _) => found.push(findings::end_refused(status)),
        }
    }
    for cookie in report.cookies.iter().filter(|it| !it.is_sent_back) {
        found.push(findings::cookie_not_sent(&cookie.name));
    }
    for (what, listing) in [
        ("tools", &report.tools),
        ("prompts", &report.prompts),
        ("resources", &report.resources),
    ] {
        let Some(listing) = listing else { continue };
        if let Some(error) = &listing.error {
            found.push(findings::list_failed(what, error));
        }
        if listing.has_more {
            found.push(findings::list_endless(what, listing.pages));
        }
    }
    found
}

/// Whether a session was opened in which no request was answered.
fn answers_nothing(report: &Report) -> bool {
    let mut lists = [&report.tools, &report.prompts, &report.resources]
        .into_iter()
        .flatten();
    report
        .ping
        .as_ref()
        .is_some_and(|pings| pings.answered == 0)
        && lists.all(|list| list.pages == 0 && list.error.is_some())
}

/// What Bowline does with a server that works.
fn outlook(report: &Report) -> Vec<String> {
    let mut sentences = vec![on_loss(report).to_owned()];
    if !report.cookies.is_empty() {
        sentences.push("Its cookies are kept with each session.".to_owned());
    }
    if let Some(streams) = &report.streams {
        sentences.push(match streams.has_event_ids {
            true => "A stream that breaks is resumed after its last event.".to_owned(),
            false => {
                "A stream that breaks cannot be resumed: a call in it is repeated if that is safe."
                    .to_owned()
            }
        });
    }
    sentences.extend(report.tools.as_ref().and_then(on_doubt));
    sentences
}

fn on_loss(report: &Report) -> &'static str {
    if report.transport == Some(Transport::Stdio) {
        return "Each session gets a process of its own; if it exits, the session goes on with another.";
    }
    if report.transport == Some(Transport::HttpSse) {
        return "Each session is a stream of its own; if it breaks, the session goes on with another.";
    }
    let sessions = report.sessions.as_ref();
    let Some(sessions) = sessions.filter(|sessions| sessions.has_ids) else {
        return "It has no sessions to lose: its clients keep theirs, which is Bowline's own.";
    };
    match &sessions.unknown_id {
        Some(answer) if answer.status == 404 => {
            "A session that it loses is noticed (404) and opened again, and the client keeps its own."
        }
        Some(answer) if answer.is_recognized => {
            "A session that it loses is noticed by a ping and opened again, and the client keeps its own."
        }
        Some(_) => "A session that it loses is not noticed.",
        None => "A session that it loses is opened again, if it says so.",
    }
}

fn on_doubt(tools: &Listing) -> Option<String> {
    let (count, safe) = (tools.count, tools.safe_to_repeat?);
    (count > 0).then(|| match safe {
        0 => "No tool says that it can be called twice, so no call is repeated that may have run.".to_owned(),
        _ => format!("A call that may have run is repeated for {safe} of {count} tools: those that say that they can be called twice."),
    })
}
