//! What a replica counts outside of its memory: a file for each conversation, as long as its count. Several
//! replicas, each a process, have the same files, as real servers have the same database.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// The longest name of a conversation.
const LONGEST_NAME: usize = 64;

/// The counts of conversations, and who counts here.
#[derive(Debug)]
pub(crate) struct Ledger {
    directory: PathBuf,
    replica: String,
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn new(directory: PathBuf, replica: String) -> Self {
        Self { directory, replica }
    }

    /// The name of the replica that writes.
    pub(super) fn replica(&self) -> &str {
        &self.replica
    }

    /// Counts one more in this conversation.
    pub(super) fn count(&self, conversation: &str) -> Result<u64, &'static str> {
        let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
        let length = conversation.len();
        if !(1..=LONGEST_NAME).contains(&length) || !conversation.bytes().all(is_plain) {
            return Err("`conversation` is not a name of letters and digits");
        }
        self.append(conversation).map_err(|error| {
            tracing::error!(%error, "the demo cannot count");
            "the count cannot be written"
        })
    }

    fn append(&self, conversation: &str) -> io::Result<u64> {
        let path = self.directory.join(conversation);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(b"1")?;
        Ok(file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_count_on_where_another_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let replica = |name: &str| Ledger::new(directory.path().to_owned(), name.to_owned());
        let (one, two) = (replica("1"), replica("2"));
        assert_eq!(one.count("a-1"), Ok(1));
        assert_eq!(two.count("a-1"), Ok(2));
        assert_eq!(one.count("a-2"), Ok(1));
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(directory.path().to_owned(), "1".to_owned());
        for name in ["", "..", "a/b", "/tmp/x", &"x".repeat(65)] {
            assert!(ledger.count(name).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
