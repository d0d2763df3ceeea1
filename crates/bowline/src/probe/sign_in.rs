//! The step of a probe at a server that answers 401: what is published for a sign-in, and what is missing.

use super::examination::Examination;
use super::findings;
use super::report::{SignIn, Transport};
use super::trouble::{Trouble, shortened};
use crate::oauth::{AuthServerError, Challenge};
use crate::upstream::UpstreamError;

/// How many scopes are shown.
const MAX_SCOPES: usize = 16;

impl Examination<'_> {
    /// Looks for the OAuth metadata of a server that refused a request.
    pub(super) async fn sign_in(&mut self, trouble: Trouble) {
        let challenge = match &trouble {
            Trouble::Failed(UpstreamError::SignIn(reason)) => reason.challenge.clone(),
            _ => None,
        };
        if self.peer.account.is_none() {
            self.report.findings.push(findings::credentials_refused());
            return;
        }
        self.report.transport = Some(Transport::StreamableHttp);
        let found = self.discover(challenge.as_ref()).await;
        let server = self.report.server.clone();
        let finding = match &found.error {
            Some(error) => findings::no_sign_in(error),
            None if !found.registers_clients && !self.has_client() => findings::no_registration(),
            None => findings::sign_in_needed(&server),
        };
        self.report.findings.push(finding);
        if found.error.is_none() && !found.has_resource_metadata {
            self.report.findings.push(findings::no_resource_metadata());
        }
        self.report.sign_in = Some(found);
    }

    /// Notes that the server accepted the token of a sign-in.
    pub(super) fn note_signed_in(&mut self) {
        let account = self.peer.account.as_ref();
        if account.is_some_and(|account| account.sent() != 0) {
            self.report.sign_in = Some(SignIn {
                is_signed_in: true,
                ..SignIn::default()
            });
        }
    }

    async fn discover(&self, challenge: Option<&Challenge>) -> SignIn {
        let found = SignIn {
            has_challenge: challenge.is_some(),
            ..SignIn::default()
        };
        let config = self.peer.upstream.config();
        let url = config.target.urls().first().map(ToString::to_string);
        let discovered = match (&self.peer.account, url) {
            (Some(account), Some(url)) => match account.flows.auth_servers.of(&url) {
                Ok(auth_server) => Box::pin(auth_server.discover(challenge)).await,
                Err(error) => Err(error),
            },
            _ => Err(AuthServerError::NoSupport),
        };
        match discovered {
            Ok(discovery) => SignIn {
                has_resource_metadata: discovery.resource_metadata.is_some(),
                // Without an issuer there was no metadata, and the endpoints are those that 2025-03-26 assumes.
                error: (!discovery.metadata.contains_key("issuer"))
                    .then(|| AuthServerError::NoSupport.to_string()),
                issuer: Some(shortened(&discovery.issuer)),
                registers_clients: discovery.metadata.contains_key("registration_endpoint"),
                scopes: discovery
                    .scopes
                    .iter()
                    .take(MAX_SCOPES)
                    .map(|scope| shortened(scope))
                    .collect(),
                ..found
            },
            Err(error) => SignIn {
                error: Some(error.to_string()),
                ..found
            },
        }
    }

    fn has_client(&self) -> bool {
        let config = self.peer.upstream.config();
        let oauth = config.oauth.as_ref();
        oauth.is_some_and(|oauth| oauth.client.is_some())
    }
}
