//! The fields of a session's hash.

use crate::{LARGEST_VALUE, Live, StoreError, Version};

/// The four fields of a live session, as Redis returns them.
pub(super) type Fields = (Option<u64>, Option<Vec<u8>>, Option<Vec<u8>>, Option<u64>);

/// What the four fields say; `None` where there is nothing.
pub(super) fn live(
    version: Option<u64>,
    record: Option<Vec<u8>>,
    jar: Option<Vec<u8>>,
    since: Option<u64>,
) -> Result<Option<Live>, StoreError> {
    match (version, record, jar, since) {
        (None, None, None, None) => Ok(None),
        (Some(version), Some(record), Some(jar), Some(since))
            if version > 0 && record.len().max(jar.len()) <= LARGEST_VALUE =>
        {
            Ok(Some(Live {
                version: Version(version),
                record,
                jar,
                jar_since: Version(since),
            }))
        }
        _ => Err(StoreError::Damaged("an incomplete session".to_owned())),
    }
}
