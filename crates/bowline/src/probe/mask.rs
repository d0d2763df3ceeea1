//! Removes the operator's secrets from what a server said: it may repeat what it was sent.

use http::HeaderMap;

use super::report::Report;
use crate::config::{Server, Target};

/// Shorter values are words rather than secrets.
const MIN_SECRET: usize = 6;

const HIDDEN: &str = "***";

/// The secrets of a server's configuration.
pub(super) struct Mask(Vec<String>);

impl Mask {
    pub(super) fn of(server: &Server) -> Self {
        let mut secrets = values(&server.headers);
        for url in server.target.urls() {
            let query = url.query().unwrap_or_default();
            secrets.push(query.to_owned());
            let values = query.split('&').filter_map(|pair| pair.split_once('='));
            secrets.extend(values.map(|(_, value)| value.to_owned()));
        }
        if let Target::Command(command) = &server.target {
            secrets.extend(command.env.values().cloned());
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET);
        // The longest first: another may be a part of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// Hides them in everything that a server may have written.
    pub(super) fn apply(&self, report: &mut Report) {
        let hide = |text: &mut String| {
            for secret in &self.0 {
                if text.contains(secret.as_str()) {
                    *text = text.replace(secret.as_str(), HIDDEN);
                }
            }
        };
        if let Some(info) = &mut report.server_info {
            hide(&mut info.name);
            hide(&mut info.version);
        }
        report.capabilities.iter_mut().for_each(hide);
        for cookie in &mut report.cookies {
            hide(&mut cookie.name);
            cookie.attributes.iter_mut().for_each(hide);
        }
        let answered = report
            .versions
            .iter_mut()
            .filter_map(|it| it.answered.as_mut());
        answered.for_each(hide);
        if let Some(unknown) = report
            .sessions
            .as_mut()
            .and_then(|it| it.unknown_id.as_mut())
        {
            unknown
                .text
                .iter_mut()
                .chain(&mut unknown.rule)
                .for_each(hide);
        }
        if let Some(sign_in) = &mut report.sign_in {
            let texts = sign_in.issuer.iter_mut().chain(&mut sign_in.error);
            texts.chain(&mut sign_in.scopes).for_each(hide);
        }
        let lists = [
            &mut report.tools,
            &mut report.prompts,
            &mut report.resources,
        ];
        let errors = lists
            .into_iter()
            .flatten()
            .filter_map(|it| it.error.as_mut());
        errors.for_each(hide);
        for finding in &mut report.findings {
            hide(&mut finding.what);
            hide(&mut finding.advice);
        }
    }
}

/// The values of headers, whole and without their scheme (`Bearer`).
fn values(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.values().filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| [Some(text), text.split_once(' ').map(|(_, rest)| rest)])
        .flatten()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Header;
    use crate::probe::report::{Listing, ServerInfo};

    #[test]
    fn what_a_server_repeats_of_its_request_is_hidden() {
        let mut server = Server::from_url("https://mcp.example/mcp?key=query-s3cret").unwrap();
        let header = Header::parse("Authorization: Bearer header-s3cret", &|_| None).unwrap();
        server.set_headers(&[header]).unwrap();
        let mut report = Report {
            server_info: Some(ServerInfo {
                name: "hello header-s3cret".to_owned(),
                version: "1".to_owned(),
            }),
            tools: Some(Listing {
                error: Some("not for Bearer header-s3cret or key=query-s3cret".to_owned()),
                ..Listing::default()
            }),
            ..Report::default()
        };
        Mask::of(&server).apply(&mut report);
        let shown = serde_json::to_string(&report).unwrap();
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("hello ***"), "{shown}");
    }
}
