//! Why a forward was not served.

use bowline_egress::EgressError;
use thiserror::Error;

use super::record::{Ending, Failure};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::proof::{Proof, Ran, SessionState};

/// Why a forward was not served.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    #[error(
        "it does not say where it can be reached: its [peers] is missing, or it was just started"
    )]
    NoAddress,
    #[error("it cannot be reached: {0}")]
    Unreachable(EgressError),
    #[error("it did not answer a greeting within {0:?}")]
    Silent(std::time::Duration),
    /// Nothing but a greeting was sent.
    #[error("what answers at its address ({0}) does not have the same secret in [peers]")]
    Stranger(Box<str>),
    #[error("its answer broke off: {0}")]
    Broken(Box<str>),
    /// Its presence ended while it was waited for.
    #[error("it is gone")]
    Gone { was_sent: bool },
    #[error("it does not have that any more: {0}")]
    NotMine(Box<str>),
    #[error("it cannot tell now: {0}")]
    Unsure(Box<str>),
    #[error("it refused: {0}")]
    Refused(Box<str>),
    #[error("{}", .0.what)]
    Failed(Failure),
}

impl PeerError {
    /// What it proves.
    pub(crate) fn proof(&self) -> Proof {
        let (ran, session) = match self {
            #[cfg(feature = "planted")]
            Self::Broken(_) if planted::has(Bug::BrokenHopIsNotSent) => {
                (Ran::No, SessionState::Unproven)
            }
            #[cfg(feature = "planted")]
            Self::Gone { .. } if planted::has(Bug::DeadOwnerDidNotRun) => {
                (Ran::No, SessionState::Lost)
            }
            Self::NoAddress
            | Self::Unreachable(_)
            | Self::Silent(_)
            | Self::Stranger(_)
            | Self::Unsure(_) => (Ran::No, SessionState::Unproven),
            Self::Broken(_) => (Ran::Unknown, SessionState::Unproven),
            Self::Gone { was_sent: true } => (Ran::Unknown, SessionState::Lost),
            Self::Gone { was_sent: false } | Self::NotMine(_) => (Ran::No, SessionState::Lost),
            Self::Refused(_) => (Ran::No, SessionState::Alive),
            Self::Failed(failure) => return failure.proof,
        };
        Proof { ran, session }
    }

    /// Its name among the metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::NoAddress | Self::Unreachable(_) | Self::Silent(_) => "unreachable",
            Self::Stranger(_) => "stranger",
            Self::Broken(_) => "broken",
            Self::Gone { .. } => "gone",
            Self::NotMine(_) => "not_mine",
            Self::Unsure(_) => "unsure",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// The error that an ending is, where more was expected.
    pub(crate) fn of(ending: Ending) -> Self {
        match ending {
            Ending::Done => Self::Broken("it ended early".into()),
            Ending::NotMine(why) => Self::NotMine(why),
            Ending::Unsure(why) => Self::Unsure(why),
            Ending::Refused(why) => Self::Refused(why),
            Ending::Failed(failure) => Self::Failed(failure),
        }
    }
}
