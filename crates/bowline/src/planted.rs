//! Bugs that break a promise on purpose, so that a test can show that it would notice.
//!
//! Built only with the feature `planted`, which only tests turn on. What a test of the library wants
//! broken, it says of its own gateway ([`Planted`]); what `bowline-chaos` wants broken, it says of a whole
//! process, by name ([`plant`]).

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use bowline_wire::message::RawId;

/// How long a hang is waited for with [`Bug::HangIsDeath`], and with [`Bug::StoppedIsGone`].
const PATIENCE: Duration = Duration::from_secs(3);
const HASTE: Duration = Duration::from_millis(300);

/// Which promises one gateway breaks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted {
    /// Cookies that an upstream sets are dropped.
    pub forget_cookies: bool,
}

/// A bug of a whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Every request goes again, whether or not it may run twice.
    ReplayEverything,
    /// A connection that breaks without an answer counts as one on which nothing was sent.
    EndIsNotSent,
    /// An answer that is cut is told as it is: neither repeated nor unknown.
    CutIsFinal,
    /// A tool's own 404 counts as a lost session.
    Own404IsLost,
    /// A tool's own 400 or 410 does.
    Own400IsLost,
    /// So does a balancer's 400, without a question.
    Plain400IsLost,
    /// A balancer's 404 reaches the client.
    Page404Passes,
    /// A server that says nothing for some seconds counts as lost.
    HangIsDeath,
    /// What tools were is believed for ever.
    HintsKept,
    /// Ids are compared as text.
    TextIds,
    /// A cancel is accepted and goes nowhere.
    CancelForgotten,
    /// A DELETE is accepted and ends nothing.
    DeletedLivesOn,
    /// Of the answers to a batch, one arrives.
    BatchDropsOne,
    /// An event over the limit is asked for again.
    LargeEventAgain,
    /// An endpoint that is no longer configured is not asked any more.
    DrainedIsDeaf,
    /// A file store that met an error stays as it is.
    FullDiskIsFinal,
    /// A process that exits before it answers counts as one to which nothing was sent.
    ExitIsNotSent,
    /// A process that says nothing for a moment counts as gone.
    StoppedIsGone,
    /// A process that does not start is not started again.
    FailedStartIsFinal,
    /// A gateway that missed its heartbeat uses what it owned as before.
    LateOwner,
    /// A forward that breaks off counts as one that was not sent.
    BrokenHopIsNotSent,
    /// What was forwarded to an owner that died counts as one that did not run.
    DeadOwnerDidNotRun,
    /// A message to an HTTP+SSE server whose stream ends before the answer counts as one that was not sent.
    StreamEndIsNotSent,
    /// The 404 of an HTTP+SSE server's message URL reaches the client.
    MessageUrl404Passes,
    /// A client of HTTP+SSE gets every message twice.
    SseAnswerTwice,
    /// A union sends a call to its first server, whatever the tool's name says.
    FirstServerForAll,
    /// Over HTTP+SSE, any 404 or 410 to a message counts as one that did not run.
    Sse404IsLost,
    /// A tool's own 4xx with `Retry-After` counts as a refusal by something in between.
    OwnAnswerMustWait,
    /// A tool's own 401 or 403 is replaced by an error of the gateway's.
    Own403IsRefused,
    /// `list_changed` counts only once a client is shown it.
    ChangeIsUnheard,
    /// What looks like the id of a repeat is taken for one.
    ForgeryIsBelieved,
    /// A process's JSON counts as a message without `jsonrpc`.
    LogsAreMessages,
    /// Two calls under one id go to one process or stream as they are.
    EqualIdsMeet,
    /// A process that exits right after `initialize` counts as one that started.
    YoungIsWell,
    /// The transport that a server was first found to speak is the only one that is tried.
    FirstTransportIsFinal,
    /// A heartbeat needs room in the Redis.
    FullRedisStops,
    /// A server that is away is not in a union's list, and nothing says so.
    AbsenceIsSilent,
}

/// No bug has this name.
#[derive(Debug)]
pub struct UnknownBug(String);

static PLANTED: OnceLock<Bug> = OnceLock::new();

/// Plants the bug of this name in this process, for good.
///
/// # Errors
///
/// When there is none.
pub fn plant(name: &str) -> Result<(), UnknownBug> {
    let named = |bug: &Bug| bug.name() == name;
    let bug = Bug::ALL.into_iter().find(named);
    let bug = bug.ok_or_else(|| UnknownBug(name.to_owned()))?;
    PLANTED.get_or_init(|| bug);
    if has(Bug::FullDiskIsFinal) {
        bowline_store::planted::keep_disk_errors();
    }
    if has(Bug::FullRedisStops) {
        bowline_store::planted::make_presence_take_room();
    }
    Ok(())
}

/// Whether this bug was planted.
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(&bug)
}

/// The same, but with this bug only for a while.
pub(crate) async fn impatient<T, E>(
    bug: Bug,
    answering: impl Future<Output = Result<T, E>>,
    lost: impl FnOnce() -> E,
) -> Result<T, E> {
    if !has(bug) {
        return answering.await;
    }
    let patience = match bug {
        Bug::StoppedIsGone => HASTE,
        _ => PATIENCE,
    };
    let waited = tokio::time::timeout(patience, answering).await;
    waited.unwrap_or_else(|_| Err(lost()))
}

/// Whether an answer does not have the id letter for letter, and [`Bug::TextIds`] takes that for another.
pub(crate) fn lacks_text(answer: &[u8], id: RawId<'_>) -> bool {
    has(Bug::TextIds) && !String::from_utf8_lossy(answer).contains(id.as_str())
}

impl Bug {
    const ALL: [Self; 37] = [
        Self::ReplayEverything,
        Self::EndIsNotSent,
        Self::CutIsFinal,
        Self::Own404IsLost,
        Self::Own400IsLost,
        Self::Plain400IsLost,
        Self::Page404Passes,
        Self::HangIsDeath,
        Self::HintsKept,
        Self::TextIds,
        Self::CancelForgotten,
        Self::DeletedLivesOn,
        Self::BatchDropsOne,
        Self::LargeEventAgain,
        Self::DrainedIsDeaf,
        Self::FullDiskIsFinal,
        Self::ExitIsNotSent,
        Self::StoppedIsGone,
        Self::FailedStartIsFinal,
        Self::LateOwner,
        Self::BrokenHopIsNotSent,
        Self::DeadOwnerDidNotRun,
        Self::StreamEndIsNotSent,
        Self::MessageUrl404Passes,
        Self::SseAnswerTwice,
        Self::FirstServerForAll,
        Self::Sse404IsLost,
        Self::OwnAnswerMustWait,
        Self::Own403IsRefused,
        Self::ChangeIsUnheard,
        Self::ForgeryIsBelieved,
        Self::LogsAreMessages,
        Self::EqualIdsMeet,
        Self::YoungIsWell,
        Self::FirstTransportIsFinal,
        Self::FullRedisStops,
        Self::AbsenceIsSilent,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ReplayEverything => "replay_everything",
            Self::EndIsNotSent => "end_is_not_sent",
            Self::CutIsFinal => "cut_is_final",
            Self::Own404IsLost => "own_404_is_lost",
            Self::Own400IsLost => "own_400_is_lost",
            Self::Plain400IsLost => "plain_400_is_lost",
            Self::Page404Passes => "page_404_passes",
            Self::HangIsDeath => "hang_is_death",
            Self::HintsKept => "hints_kept",
            Self::TextIds => "text_ids",
            Self::CancelForgotten => "cancel_forgotten",
            Self::DeletedLivesOn => "deleted_lives_on",
            Self::BatchDropsOne => "batch_drops_one",
            Self::LargeEventAgain => "large_event_again",
            Self::DrainedIsDeaf => "drained_is_deaf",
            Self::FullDiskIsFinal => "full_disk_is_final",
            Self::ExitIsNotSent => "exit_is_not_sent",
            Self::StoppedIsGone => "stopped_is_gone",
            Self::FailedStartIsFinal => "failed_start_is_final",
            Self::LateOwner => "late_owner",
            Self::BrokenHopIsNotSent => "broken_hop_is_not_sent",
            Self::DeadOwnerDidNotRun => "dead_owner_did_not_run",
            Self::StreamEndIsNotSent => "stream_end_is_not_sent",
            Self::MessageUrl404Passes => "message_url_404_passes",
            Self::SseAnswerTwice => "sse_answer_twice",
            Self::FirstServerForAll => "first_server_for_all",
            Self::Sse404IsLost => "sse_404_is_lost",
            Self::OwnAnswerMustWait => "own_answer_must_wait",
            Self::Own403IsRefused => "own_403_is_refused",
            Self::ChangeIsUnheard => "change_is_unheard",
            Self::ForgeryIsBelieved => "forgery_is_believed",
            Self::LogsAreMessages => "logs_are_messages",
            Self::EqualIdsMeet => "equal_ids_meet",
            Self::YoungIsWell => "young_is_well",
            Self::FirstTransportIsFinal => "first_transport_is_final",
            Self::FullRedisStops => "full_redis_stops",
            Self::AbsenceIsSilent => "absence_is_silent",
        }
    }
}

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Bug::ALL.map(Bug::name).join(", ");
        write!(f, "there is no planted bug `{}`, but {known}", self.0)
    }
}

impl std::error::Error for UnknownBug {}
