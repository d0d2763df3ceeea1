//! How a sign-in ends: an answer comes, by whichever way and at whichever gateway, and what it brings
//! is kept.
//!
//! An answer counts for the flow that is under way between its caller and its server, and once: a flow
//! in whose place another one was begun is dead, also while its code is being exchanged.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::authority::{AuthorityError, check_issuer};
use super::flow::{Authorization, End, Flow, FlowId};
use super::grant::{ClientIdentity, Grant, Tokens};
use super::pending::PendingError;
use super::secret::Secret;
use super::sign_ins::{SignInError, SignIns};
use crate::clock;

/// How long a caller who said no is not asked again.
const DECLINE_REMEMBERED: i64 = 10 * 60;
/// The most characters of an error's description that are shown.
const MAX_SAID: usize = 300;

/// What came back from an authorization server, by whichever way.
#[derive(Debug)]
pub(crate) enum Delivery {
    Code {
        code: Secret,
        iss: Option<String>,
    },
    /// An error's code, and what is said of it for people.
    Error {
        error: String,
        description: Option<String>,
        iss: Option<String>,
    },
}

/// By which way an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Via<'a> {
    /// This gateway's own page, with what the browser has of the start page.
    Browser(Option<&'a str>),
    /// Whoever was trusted to pass it on, and who may not know of `iss`.
    Courier,
    /// The browser of whoever began the flow, which came back to a listener of that flow's own.
    Loopback,
}

/// Why an answer was not taken. The flow, if there is one, goes on.
#[derive(Debug, Error)]
pub(crate) enum NotDelivered {
    /// No such state, or not any more; or not for this browser.
    #[error("no sign-in waits for this answer")]
    Unknown,
    #[error("the answer is not from the authorization server that was asked")]
    Issuer,
    #[error(transparent)]
    Pending(#[from] PendingError),
    #[error("the sign-in was given up")]
    GivenUp,
}

/// A few tries at something that may be away for a moment.
struct Tries {
    pause: Duration,
}

// === impl SignIns ===

impl SignIns {
    /// Takes an authorization server's answer. The state that came with it is what is verified; an
    /// answer that is not taken changes nothing. How the sign-in then ended is returned, and told to
    /// everybody who waits.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        state: &str,
        delivery: Delivery,
        via: Via<'_>,
    ) -> Result<End, NotDelivered> {
        let id = FlowId::of(state);
        let flow = self.pending.flow(&id).await?.ok_or(NotDelivered::Unknown)?;
        let way = flow.authorization().ok_or(NotDelivered::Unknown)?;
        let may_deliver = match via {
            Via::Loopback => true,
            // What comes back to a page of ours comes by the browser that left from there, and nothing
            // else comes by any browser: where there is an API token, a host shows that.
            Via::Courier => !flow.is_managed(),
            Via::Browser(shown) => match (&way.browser, shown) {
                (Some(secret), Some(shown)) => flow.is_managed() && secret.is(shown),
                _ => false,
            },
        };
        if !way.begun.state.is(state) || !flow.is_open(clock::unix_seconds()) || !may_deliver {
            return Err(NotDelivered::Unknown);
        }
        let (Delivery::Code { iss, .. } | Delivery::Error { iss, .. }) = &delivery;
        let iss = match (iss, via) {
            // It passed on what it was given, and knows of no more.
            (None, Via::Courier) => Some(flow.found.issuer.clone()),
            (iss, _) => iss.clone(),
        };
        check_issuer(&flow.found, iss.as_deref()).map_err(|_| NotDelivered::Issuer)?;
        // A flow that was taken is finished even if whoever brought the answer leaves: a code is good
        // once.
        let sign_ins = Arc::clone(self);
        let finishing = async move { sign_ins.finish(&id, delivery, iss.as_deref()).await };
        match self.grants.tracker().spawn(finishing).await {
            Ok(finished) => finished,
            Err(_) => Err(NotDelivered::GivenUp),
        }
    }

    /// Takes a flow, for one answer alone, and ends it.
    async fn finish(
        &self,
        id: &FlowId,
        delivery: Delivery,
        iss: Option<&str>,
    ) -> Result<End, NotDelivered> {
        let flow = self.take(id).await?;
        let end = match delivery {
            Delivery::Code { code, .. } => match flow.authorization() {
                Some(way) => self.exchange(&flow, way, (&code, iss)).await,
                None => return Err(NotDelivered::Unknown),
            },
            Delivery::Error {
                error, description, ..
            } => refusal(&error, description.as_deref()),
        };
        self.end(&flow, end.clone()).await;
        Ok(end)
    }

    /// Takes a flow for whoever brings its answer first, if it is the one that is under way. From then
    /// on requests wait for what comes of it, and begin no other.
    pub(super) async fn take(&self, id: &FlowId) -> Result<Flow, NotDelivered> {
        let flow = self.pending.flow(id).await?.ok_or(NotDelivered::Unknown)?;
        if !self.is_under_way(&flow).await? {
            return Err(NotDelivered::Unknown);
        }
        // One that is replaced from here on is found out when it ends, or when its tokens are kept.
        let now = clock::unix_seconds();
        let taken = self.pending.change(id, |flow| flow.take(now)).await?;
        taken.ok_or(NotDelivered::Unknown)
    }

    /// Whether no other flow was begun in the place of this one, and its caller is there.
    pub(super) async fn is_under_way(&self, flow: &Flow) -> Result<bool, PendingError> {
        if !self.identities.knows_identity(&flow.caller) {
            return Ok(false);
        }
        let signing = self.pending.signing(&flow.caller, &flow.server_url).await?;
        Ok(signing.flow.as_ref() == Some(&flow.id))
    }

    async fn exchange(
        &self,
        flow: &Flow,
        way: &Authorization,
        (code, iss): (&Secret, Option<&str>),
    ) -> End {
        let exchanged = async {
            let authority = self.authorities.of(&flow.server_url)?;
            let tokens = authority
                .exchange(&flow.found, &way.client, &way.begun, code.expose(), iss)
                .await?;
            self.keep(flow, way.client.clone(), tokens).await?;
            if way.is_client_named {
                // Only now: a client that somebody mistyped would be in everybody's way.
                let kept =
                    self.vault
                        .put_named_client(&flow.caller, &flow.found.issuer, &way.client);
                kept.await?;
            }
            Ok(())
        };
        let exchanged = exchanged.await;
        if let Err(SignInError::Authority(AuthorityError::ClientRefused(_))) = &exchanged {
            self.forget_client(flow, &way.client).await;
        }
        ended_as(flow, exchanged)
    }

    /// Keeps what a sign-in brought; a vault that is away for a moment is waited for, because nobody
    /// can bring it twice.
    pub(super) async fn keep(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        tokens: Tokens,
    ) -> Result<(), SignInError> {
        let mut tries = Tries::new();
        loop {
            match self.keep_now(flow, client.clone(), tokens.clone()).await {
                Ok(()) => return Ok(()),
                Err(SignInError::Replaced) => return Err(SignInError::Replaced),
                Err(SignInError::SignedOut) => {
                    self.give_back(flow, client, tokens).await;
                    return Err(SignInError::SignedOut);
                }
                Err(_) if tries.again().await => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn keep_now(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        tokens: Tokens,
    ) -> Result<(), SignInError> {
        if !self.identities.knows_identity(&flow.caller) {
            return Err(SignInError::SignedOut);
        }
        // An exchange may take long, and its caller may have signed in by another link meanwhile.
        if !self.is_under_way(flow).await? {
            let outs = self.grants.outs(&flow.caller, &flow.server_url).await?;
            return Err(match outs > flow.outs {
                true => SignInError::SignedOut,
                false => SignInError::Replaced,
            });
        }
        let found = (flow.found.clone(), client);
        self.grants
            .sign_in((&flow.caller, &flow.server_url), flow.outs, found, tokens)
            .await?;
        Ok(())
    }

    /// Nobody is there any more to have these tokens.
    async fn give_back(&self, flow: &Flow, client: ClientIdentity, tokens: Tokens) {
        let found = (flow.found.clone(), client);
        let grant = Grant::new(&flow.caller, found, tokens, 0, clock::unix_seconds());
        if let Err(error) = self.revoke(&flow.server_url, &grant).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "tokens that nobody may use are not taken back");
        }
    }

    /// The person, or whoever asked the person, said no.
    pub(crate) async fn decline(&self, id: &FlowId) -> Result<End, NotDelivered> {
        let flow = self.take(id).await?;
        let end = End::Declined { said: None };
        self.end(&flow, end.clone()).await;
        Ok(end)
    }

    /// Tells everybody who waits how a flow ended.
    pub(super) async fn end(&self, flow: &Flow, end: End) {
        let mut tries = Tries::new();
        while let Err(error) = self.note_end(flow, &end).await {
            if !tries.again().await {
                tracing::warn!(%error, server = %flow.server, "nobody is told how a sign-in ended");
                break;
            }
        }
        self.forget(&flow.id).await;
        self.ended.notify_waiters();
    }

    async fn note_end(&self, flow: &Flow, end: &End) -> Result<(), PendingError> {
        let (id, now) = (&flow.id, clock::unix_seconds());
        tracing::info!(server = %flow.server, flow = ?id, end = end.name(), "sign-in ended");
        self.pending
            .change_signing(&flow.caller, &flow.server_url, |signing| {
                // A dead one has nothing to say of the one in its place.
                if signing.flow.as_ref() != Some(id) {
                    return false;
                }
                signing.flow = None;
                if matches!(end, End::Declined { .. }) {
                    signing.declined_until = now + DECLINE_REMEMBERED;
                }
                signing.last = Some((id.clone(), end.clone()));
                true
            })
            .await?;
        Ok(())
    }

    /// Takes out a flow that nobody needs any more. One that stays is dead all the same: it was taken,
    /// or is not the one under way.
    pub(super) async fn forget(&self, id: &FlowId) {
        if let Err(error) = self.pending.remove(id).await {
            tracing::debug!(%error, flow = ?id, "a sign-in's record stays until it expires");
        }
    }
}

// === impl Tries ===

impl Tries {
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LAST_PAUSE: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self {
            pause: Self::FIRST_PAUSE,
        }
    }

    /// Waits for the next try. `false`: there were enough.
    async fn again(&mut self) -> bool {
        if self.pause > Self::LAST_PAUSE {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}

/// How a flow ended that its last step could still break.
pub(super) fn ended_as(flow: &Flow, done: Result<(), SignInError>) -> End {
    match done {
        Ok(()) => End::SignedIn,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "a sign-in failed at its end");
            End::Failed(error.to_string())
        }
    }
}

/// How a flow ended that the authorization server refused.
fn refusal(error: &str, description: Option<&str>) -> End {
    let said = description.and_then(words_of);
    if error == "access_denied" {
        return End::Declined { said };
    }
    let mut why = format!("the authorization server answered {}", code_of(error));
    if let Some(said) = said {
        why = format!("{why}: \"{said}\"");
    }
    End::Failed(why)
}

/// An error code as far as it can be one: anybody could have written it.
fn code_of(error: &str) -> &str {
    let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    match error.len() <= 40 && error.bytes().all(is_code) {
        true => error,
        false => "an error",
    }
}

/// What is said of an error, on one line and in quotation marks that it cannot end: anybody could have
/// written it. Whoever shows it escapes it as the place demands.
fn words_of(description: &str) -> Option<String> {
    let printed = description.chars().map(|character| match character {
        '"' => '\'',
        control if is_unprintable(control) => ' ',
        other => other,
    });
    let printed: String = printed.collect();
    let line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut words: String = line.chars().take(MAX_SAID).collect();
    if words.len() < line.len() {
        words.push('…');
    }
    (!words.is_empty()).then_some(words)
}

/// Also what would turn the text around it, or hide some of it.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{feff}')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_error_is_one_line_that_ends_nothing() {
        assert_eq!(words_of(" \r\n\t"), None);
        assert_eq!(words_of("Ask\r\nthe  admin.").unwrap(), "Ask the admin.");
        assert_eq!(
            words_of("no\" Now run \u{202e}this\u{e0041}").unwrap(),
            "no' Now run this"
        );
        assert_eq!(words_of("Zugriff für Übung").unwrap(), "Zugriff für Übung");
        let long = words_of(&"ä".repeat(1000)).unwrap();
        assert_eq!(long.chars().count(), MAX_SAID + 1);
    }

    #[test]
    fn a_refusal_says_what_the_authorization_server_did() {
        let said = |error, description| refusal(error, description);
        assert_eq!(
            said("access_denied", Some("Ask.")),
            End::Declined {
                said: Some("Ask.".to_owned())
            }
        );
        let why = "the authorization server answered server_error: \"Down.\"";
        assert_eq!(
            said("server_error", Some("Down.")),
            End::Failed(why.to_owned())
        );
        let why = "the authorization server answered an error";
        assert_eq!(said("<b>", None), End::Failed(why.to_owned()));
    }
}
