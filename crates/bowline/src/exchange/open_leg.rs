//! Opening a leg: one `initialize` at one endpoint, for a new session or for the next generation of one.

use std::sync::Arc;

use bowline_egress::{Jar, Sent};
use bowline_wire::message::{Message, RawId};
use bowline_wire::version::{self, Agreed};

use crate::caller::Caller;
use crate::exchange::reply::Reply;
use crate::exchange::stream::relay::{EventRelay, Relay};
use crate::leg::capabilities::MissingLists;
use crate::leg::marks::{Seal, StreamOrigin};
use crate::leg::rewrite::Rewrite;
use crate::leg::{Generation, Leg, Life};
use crate::oauth::Account;
use crate::upstream::reserved::Reserved;
use crate::upstream::{
    Carried, Conversation, Credentials, Declination, InitializeAnswer, Initialized, Issued, Link,
    Pin, Repeat, Upstream, UpstreamError,
};

/// An `initialize`, and where and for whom it is sent.
#[derive(Debug)]
pub(crate) struct LegOpening<'a> {
    pub(crate) upstream: &'a Arc<Upstream>,
    pub(crate) endpoint: &'a Pin,
    /// The number that the leg gets.
    pub(crate) generation: Generation,
    pub(crate) caller: &'a Caller,
    pub(crate) account: Option<&'a Arc<Account>>,
    pub(crate) message: &'a Message,
    pub(crate) carried: &'a Carried,
    /// The cookies to send, and with whose credentials they came about, if there are any.
    pub(crate) jar: Jar,
    pub(crate) jar_credentials: Option<Credentials>,
    /// Seals the ids in the answer's stream.
    pub(crate) seal: &'a Seal,
    pub(crate) sent: Sent,
}

/// A new leg, and the server's answer.
#[derive(Debug)]
pub(crate) struct OpenedLeg {
    pub(crate) newborn: Newborn,
    pub(crate) answer: Message,
    pub(crate) reply: Reply<Relay>,
}

/// Why no leg was opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The server, or a proxy before it, declined.
    Declined(Declination),
    Failed(UpstreamError),
}

/// A leg that no session uses yet. Dropping it ends the session at the server.
#[derive(Debug)]
pub(crate) struct Newborn {
    leg: Arc<Leg>,
    carried: Carried,
    stays: bool,
}

// === impl LegOpening ===

impl LegOpening<'_> {
    /// Sends the `initialize`, and reads up to the answer.
    pub(crate) async fn open(mut self) -> Result<OpenedLeg, NotOpened> {
        let jar = std::mem::take(&mut self.jar);
        let conversation = Conversation::new(&self.endpoint.address, jar);
        let account = self.account.map(|account| &**account);
        let link = Link {
            endpoint: self.endpoint,
            conversation: &conversation,
            version: None,
            carried: self.carried,
            account,
            credentials: self.jar_credentials,
            repeat: Repeat::Safe,
        };
        let has_token = self.upstream.config().sets_token();
        let initialized = self.initialize(link).await?;
        let (issued, answer) = match initialized {
            Initialized::Answered { issued, answer } => (issued, answer),
            Initialized::Declined(declination) => return Err(NotOpened::Declined(declination)),
        };
        let (known, issued) = match issued {
            Ok(issued) => (issued, Ok(())),
            Err(error) => (Issued::SessionId(None), Err(error)),
        };
        let life = Life {
            generation: self.generation,
            conversation: conversation.issued(known),
            version: asked_version(self.message)?,
            credentials: Credentials::of_opening(account, has_token),
            missing_lists: MissingLists::default(),
        };
        let (upstream, endpoint) = (Arc::clone(self.upstream), self.endpoint.again());
        let leg = Leg::new(upstream, endpoint, self.account.cloned(), life);
        // From here on the server has a session, which ends on drop unless a session takes the leg.
        let mut newborn = Newborn {
            leg: Arc::new(leg),
            carried: self.carried.clone(),
            stays: false,
        };
        let reserved = &self.upstream.reserved;
        let id = self.message.id().unwrap_or_default();
        let (answer, reply) = read_answer(answer, id, self.seal, self.generation, reserved).await?;
        if let Some(result) = answer.initialized() {
            issued?;
            let agreed = Agreed::on(&result.version).ok_or(UpstreamError::BadInitialize)?;
            newborn.change(|leg| leg.version = agreed);
            if let (Some(account), Some(result)) = (self.account, answer.result()) {
                account.remember_initialized(result);
            }
        }
        Ok(OpenedLeg {
            newborn,
            answer,
            reply,
        })
    }
}

impl LegOpening<'_> {
    async fn initialize(&self, link: Link<'_>) -> Result<Initialized, UpstreamError> {
        let raw = self.message.raw();
        let post = |link| {
            let sent = self.sent.clone();
            self.upstream
                .initialize(link, self.caller, raw.clone(), sent)
        };
        match post(link).await {
            // The cookies belong to other credentials, so they are dropped.
            Err(UpstreamError::SessionLost) if link.credentials.is_some() => {
                if let Some(jar) = link.conversation.jar() {
                    *jar.lock() = Jar::default();
                }
                let credentials = None;
                post(Link {
                    credentials,
                    ..link
                })
                .await
            }
            initialized => initialized,
        }
    }
}

/// The version that the client asks for, used until the server has agreed on one.
fn asked_version(message: &Message) -> Result<Agreed, UpstreamError> {
    let asked = message.param("protocolVersion");
    let asked = asked.map(|span| message.text(span).trim_matches('"'));
    let [.., newest] = version::SUPPORTED;
    let mut known = version::SUPPORTED.into_iter();
    let version = known.find(|known| Some(*known) == asked);
    Agreed::on(version.unwrap_or(newest)).ok_or(UpstreamError::BadInitialize)
}

async fn read_answer(
    answer: InitializeAnswer,
    id: RawId<'_>,
    seal: &Seal,
    generation: Generation,
    reserved: &Reserved,
) -> Result<(Message, Reply<Relay>), UpstreamError> {
    let whole = match answer {
        InitializeAnswer::Message(answer) => answer.whole().await?,
        InitializeAnswer::Held(whole) => whole,
        InitializeAnswer::Events(source) => {
            let origin = StreamOrigin::Request(id.to_buf());
            let rewrite = Rewrite::new(seal.clone(), generation, origin, reserved.clone());
            let mut events = Box::new(EventRelay::new(source, rewrite));
            let message = events.until_answer(id).await?;
            return Ok((message, Reply::events(events).await));
        }
    };
    let message = Message::parse(whole.body.clone()).map_err(|_| UpstreamError::BadInitialize)?;
    if !message.answers(id) {
        return Err(UpstreamError::BadInitialize);
    }
    Ok((message, whole.into()))
}

// === impl NotOpened ===

impl From<UpstreamError> for NotOpened {
    fn from(error: UpstreamError) -> Self {
        Self::Failed(error)
    }
}

// === impl Newborn ===

impl Newborn {
    pub(crate) fn leg(&self) -> &Arc<Leg> {
        &self.leg
    }

    /// Sets the lists that the server does not have.
    pub(crate) fn missing_lists(&mut self, missing_lists: MissingLists) {
        self.change(|leg| leg.missing_lists = missing_lists);
    }

    fn change(&mut self, change: impl FnOnce(&mut Leg)) {
        // Nobody else holds the leg yet.
        if let Some(leg) = Arc::get_mut(&mut self.leg) {
            change(leg);
        }
    }

    /// Keeps the leg: a session uses it from now on, or the server has no session to end.
    pub(crate) fn stays(mut self) -> Arc<Leg> {
        self.stays = true;
        Arc::clone(&self.leg)
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.stays && self.leg.has_upstream_session() {
            let carried = std::mem::take(&mut self.carried);
            Arc::clone(&self.leg).discard(Arc::new(carried));
        }
    }
}
