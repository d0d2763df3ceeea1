//! What lives in one gateway and cannot be stored: a process, or a stream that is a session. One channel carries
//! all its messages, so ids and tokens say whose each one is ([`Routing`]). Its end is the session's end, and no
//! other gateway can go on with it: the session's record names the gateway that owns it.

mod channels;
mod inbox;
mod incoming;
mod receiving;
mod remote;
mod routing;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::channels::LiveChannels;
pub(super) use self::inbox::{Beginning, Over};
pub(crate) use self::incoming::Incoming;
pub(super) use self::incoming::Recipient;
pub(super) use self::receiving::{Oddity, Receiving, Words};
pub(crate) use self::remote::Remote;
pub(super) use self::routing::{Routing, Whose};
pub(crate) use self::unread::Unread;
use super::error::{End, LiveError};
use crate::owners::Owners;

/// Something that lives in one gateway, as a leg knows it.
#[derive(Debug)]
pub(crate) enum Live<T> {
    /// There is none yet.
    Unopened,
    Here(Arc<T>),
    /// A record says that another gateway has it.
    Elsewhere(Arc<Remote>),
}

// === impl Live ===

impl<T> Live<T> {
    /// What a record says, which was read just now.
    pub(super) fn stored(remote: Option<Remote>) -> Self {
        match remote {
            Some(remote) => Self::Elsewhere(Arc::new(remote)),
            None => Self::Unopened,
        }
    }

    /// The thing itself, which must be there for anything but `initialize`. This alone decides whether it may be
    /// used, is another gateway's, or is lost.
    pub(super) fn get(&self, owners: &Owners) -> Result<&Arc<T>, LiveError> {
        match self {
            Self::Here(it) if owners.is_certain() => Ok(it),
            Self::Here(_) => Err(LiveError::Unsure),
            Self::Elsewhere(remote) if !remote.owner.is_gone(owners) => {
                Err(LiveError::Elsewhere(Arc::clone(&remote.owner.id)))
            }
            Self::Elsewhere(..) | Self::Unopened => Err(LiveError::Ended {
                end: Arc::new(End::of_gateway()),
                was_written: false,
            }),
        }
    }

    /// Looks whether its owner is present now: it may have gone since the last look.
    pub(super) async fn look(&self, owners: &Owners, limit: Duration) {
        if let Self::Elsewhere(remote) = self {
            owners.look(&remote.owner.id, Instant::now(), limit).await;
        }
    }

    /// Where it is, if another gateway has it.
    pub(super) fn remote(&self) -> Option<&Remote> {
        match self {
            Self::Elsewhere(remote) => Some(remote),
            Self::Here(_) | Self::Unopened => None,
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    pub(super) fn is_unopened(&self) -> bool {
        matches!(self, Self::Unopened)
    }

    /// The gateway that owns it, for a record that the gateway `me` writes.
    pub(super) fn owner<'a>(&'a self, me: &'a str) -> Option<&'a str> {
        match self {
            Self::Unopened => None,
            Self::Here(_) => Some(me),
            Self::Elsewhere(remote) => Some(&remote.owner.id),
        }
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unopened => Self::Unopened,
            Self::Here(it) => Self::Here(Arc::clone(it)),
            Self::Elsewhere(remote) => Self::Elsewhere(Arc::clone(remote)),
        }
    }
}
