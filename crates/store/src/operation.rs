//! The operations of a store, by name.

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Makes an absent key live.
    Create,
    /// Reads what is under a key.
    Load,
    /// Replaces a record.
    Update,
    /// Extends the time of a live key.
    Touch,
    /// Ends a live key.
    End,
    /// Removes a live key whose time is nearly over.
    Expire,
    /// Counts the live sessions.
    Count,
    /// Takes the next number of a live key.
    NextNumber,
    /// Reads the last number of a live key.
    LastNumber,
    /// Replaces a jar.
    PutJar,
    /// Takes or renews a claim.
    Claim,
    /// Gives a claim back.
    Release,
    /// Publishes an announcement.
    Announce,
    /// Says that a gateway is present.
    Appear,
    /// Says that a gateway is no longer present.
    Leave,
    /// Reads which gateways are listed.
    Gateways,
    /// Asks whether the store answers.
    Ping,
}

impl Operation {
    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Load => "load",
            Self::Update => "update",
            Self::Touch => "touch",
            Self::End => "end",
            Self::Expire => "expire",
            Self::Count => "count",
            Self::NextNumber => "next_number",
            Self::LastNumber => "last_number",
            Self::PutJar => "put_jar",
            // The name that dashboards know.
            Self::Claim => "lease",
            Self::Release => "release",
            Self::Announce => "announce",
            Self::Appear => "appear",
            Self::Leave => "leave",
            Self::Gateways => "gateways",
            Self::Ping => "ping",
        }
    }

    /// Whether a store that refuses this cannot even be read.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Load | Self::Ping)
    }
}
