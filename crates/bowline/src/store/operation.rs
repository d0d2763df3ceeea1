//! What a store is asked to do, by name.

/// One of the things that a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Create,
    Load,
    Update,
    Touch,
    End,
    Expire,
    Count,
    NextNumber,
    LastNumber,
    PutJar,
    Lease,
    Release,
    Announce,
    Appear,
    Leave,
    Gateways,
    Ping,
}

impl Operation {
    /// The name in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
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
            Self::Lease => "lease",
            Self::Release => "release",
            Self::Announce => "announce",
            Self::Appear => "appear",
            Self::Leave => "leave",
            Self::Gateways => "gateways",
            Self::Ping => "ping",
        }
    }

    /// Whether a store that refuses this is of no use: it cannot even be asked.
    pub(crate) fn is_asking(self) -> bool {
        matches!(self, Self::Load | Self::Ping)
    }
}
