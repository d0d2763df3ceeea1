//! The labels of the metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

use crate::config::ServerName;

/// A set of labels that knows their names.
pub(super) trait LabelNames {
    const NAMES: &[&str];
}

/// Declares sets of labels.
macro_rules! label_sets {
    ($($set:ident { $($label:ident: $type:ty),* })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(super) struct $set {
            $(pub(super) $label: $type,)*
        }

        impl LabelNames for $set {
            const NAMES: &[&str] = &[$(stringify!($label)),*];
        }
    )*};
}

label_sets! {
    BuildLabels { version: &'static str }
    KindLabels { kind: &'static str }
    OperationLabels { operation: &'static str }
    OutcomeLabels { operation: &'static str, outcome: &'static str }
    ServerLabels { server: NameLabel }
    RequestLabels { server: NameLabel, method: &'static str, status: u16 }
    ReasonLabels { reason: &'static str }
    EndLabels { server: NameLabel, reason: &'static str }
    LossLabels { server: NameLabel, cause: &'static str }
    RecoveryLabels { server: NameLabel, result: &'static str }
    ForwardLabels { outcome: &'static str }
    EndpointLabels { server: NameLabel, endpoint: String }
}

/// A server's name as a label: shared, not copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NameLabel(pub(super) ServerName);

impl EncodeLabelValue for NameLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name: &str = self.0.as_ref();
        EncodeLabelValue::encode(&name, encoder)
    }
}
