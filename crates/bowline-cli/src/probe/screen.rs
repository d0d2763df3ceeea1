//! A probe's report on one screen.

use std::fmt::{self, Display, Formatter};

use bowline::probe::{
    Era, Finding, Listing, Report, Sessions, Severity, SignIn, Streams, Transport, Verdict,
};
use bowline_system::printable::printable;

/// How wide the first column is.
const COLUMN: usize = 14;

/// The report for people.
pub(super) struct Screen<'a>(pub(super) &'a Report);

impl Display for Screen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let replicas = match report.endpoints {
            0 | 1 => String::new(),
            more => format!(" (the first of {more} endpoints)"),
        };
        writeln!(f, "{}{replicas}", printable(&report.server))?;
        let rows = rows(report);
        if !rows.is_empty() {
            writeln!(f)?;
        }
        for (title, text) in rows {
            writeln!(f, "  {title:COLUMN$}{}", printable(&text))?;
        }
        if !report.outlook.is_empty() {
            writeln!(f, "\nBehind Bowline:")?;
        }
        for sentence in &report.outlook {
            writeln!(f, "  {}", printable(sentence))?;
        }
        let verdict = match report.verdict {
            Verdict::Works => "It works.",
            Verdict::WorksWithRemarks => "It works, with remarks.",
            Verdict::DoesNotWork => "It does not work.",
        };
        writeln!(f, "\n{verdict}")?;
        report.findings.iter().try_for_each(|one| finding(f, one))
    }
}

fn rows(report: &Report) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(info) = &report.server_info {
        let text = format!("{} {}", info.name, info.version);
        rows.push(("Server", text.trim_end().to_owned()));
    }
    if let Some(transport) = report.transport {
        rows.push(("Transport", how(transport).to_owned()));
    }
    rows.extend(protocol(report).map(|text| ("Protocol", text)));
    if !report.capabilities.is_empty() {
        rows.push(("Capabilities", report.capabilities.join(", ")));
    }
    rows.extend(offers(report).map(|text| ("Offers", text)));
    rows.extend(
        report
            .sessions
            .as_ref()
            .map(|it| ("Sessions", sessions(it))),
    );
    rows.extend(report.streams.as_ref().map(|it| ("Streams", streams(it))));
    for cookie in &report.cookies {
        let attributes = match cookie.attributes.is_empty() {
            true => String::new(),
            false => format!(" ({})", cookie.attributes.join("; ")),
        };
        rows.push(("Cookie", format!("{}{attributes}", cookie.name)));
    }
    rows.extend(report.sign_in.as_ref().map(|it| ("Sign-in", sign_in(it))));
    if let Some(ping) = &report.ping
        && let Some(median) = ping.median_ms
    {
        let of = ping.answered;
        rows.push(("Ping", format!("{median:.1} ms (median of {of})")));
    }
    rows
}

fn how(transport: Transport) -> &'static str {
    match transport {
        Transport::StreamableHttp => "streamable HTTP",
        Transport::HttpSse => "HTTP+SSE (2024-11-05)",
        Transport::Stdio => "stdio",
    }
}

fn protocol(report: &Report) -> Option<String> {
    let mut accepted: Vec<&str> = Vec::new();
    let mut refused: Vec<&str> = Vec::new();
    for offer in &report.versions {
        match offer.answered.as_deref() {
            Some(answered) if answered == offer.offered => accepted.push(answered),
            // It has chosen another, which it knows.
            Some(answered) if !accepted.contains(&answered) && refused.is_empty() => {
                refused.push(offer.offered);
                accepted.push(answered);
            }
            _ => refused.push(offer.offered),
        }
    }
    if matches!(report.era, Some(Era::Modern | Era::Both)) {
        accepted.insert(0, "2026-07-28 (without sessions)");
    }
    accepted.dedup();
    let mut text = accepted.join(", ");
    if !refused.is_empty() {
        let but = if text.is_empty() { "" } else { "; " };
        text += &format!("{but}not {}", refused.join(", "));
    }
    (!text.is_empty()).then_some(text)
}

fn offers(report: &Report) -> Option<String> {
    let listed = |what: &str, listing: &Option<Listing>| {
        let listing = listing.as_ref()?;
        let more = if listing.has_more { "more than " } else { "" };
        let safe = match listing.safe_to_repeat {
            Some(safe) if listing.count > 0 => format!(" ({safe} safe to repeat)"),
            _ => String::new(),
        };
        let plural = if listing.count == 1 { "" } else { "s" };
        Some(format!("{more}{} {what}{plural}{safe}", listing.count))
    };
    let parts = [
        listed("tool", &report.tools),
        listed("prompt", &report.prompts),
        listed("resource", &report.resources),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn sessions(sessions: &Sessions) -> String {
    if !sessions.has_ids {
        return "no session ids".to_owned();
    }
    let mut text = "session ids".to_owned();
    if let Some(unknown) = &sessions.unknown_id {
        text += &format!("; an unknown one gets {}", unknown.status);
    }
    if let Some(status) = sessions.delete_status {
        text += &format!("; DELETE gets {status}");
    }
    text
}

fn streams(streams: &Streams) -> String {
    let answers = match streams.answers_with_events {
        true => "answers as events",
        false => "answers as JSON",
    };
    let get = match (streams.offers_get, streams.get_status) {
        (true, _) => "; GET opens a stream".to_owned(),
        (false, Some(status)) => format!("; GET gets {status}"),
        (false, None) => String::new(),
    };
    let ids = match streams.has_event_ids {
        true => "; event ids, so it can be resumed",
        false => "; no event ids",
    };
    format!("{answers}{get}{ids}")
}

fn sign_in(sign_in: &SignIn) -> String {
    if sign_in.is_signed_in {
        return "signed in".to_owned();
    }
    let mut text = "required (401)".to_owned();
    if !sign_in.has_challenge {
        text += ", without a challenge";
    }
    if let Some(issuer) = sign_in.issuer.as_ref().filter(|_| sign_in.error.is_none()) {
        text += &format!("; at {issuer}");
        text += match sign_in.registers_clients {
            true => ", which registers clients",
            false => ", which registers no clients",
        };
    }
    if !sign_in.scopes.is_empty() {
        text += &format!("; scopes {}", sign_in.scopes.join(" "));
    }
    text
}

fn finding(f: &mut Formatter<'_>, finding: &Finding) -> fmt::Result {
    let severity = match finding.severity {
        Severity::Problem => "problem",
        Severity::Remark => "remark",
    };
    writeln!(f, "\n{severity}: {}", printable(&finding.what))?;
    writeln!(f, "  why: {}", printable(&finding.why))?;
    for (at, line) in finding.advice.lines().enumerate() {
        let mark = if at == 0 { "  do: " } else { "      " };
        writeln!(f, "{mark}{}", printable(line))?;
    }
    Ok(())
}
