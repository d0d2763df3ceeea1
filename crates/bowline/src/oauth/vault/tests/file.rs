//! What only a file can break: other processes, damage, a lost key, and other people's eyes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bowline_store::sealed::SealKeysError;

use super::*;

/// A vault with one grant in it, and its file.
async fn with_a_grant(directory: &Path) -> (Vault, PathBuf) {
    let vault = Vault::File(open(directory).unwrap());
    let grant = grant("access-secret", Some("refresh-secret"));
    let written = vault.put_grant(&grant, NEVER_WRITTEN).await.unwrap();
    assert!(written.is_some());
    (vault, directory.join("grants.sealed"))
}

#[tokio::test]
async fn what_two_processes_write_is_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let handles = [(); 4].map(|()| Arc::new(Vault::File(open(directory.path()).unwrap())));
    let mut all = JoinSet::new();
    for number in 0..20 {
        let vault = Arc::clone(&handles[number % 4]);
        all.spawn(async move {
            let mut grant = grant("one", None);
            grant.caller = number.to_string();
            vault
                .put_grant(&grant, NEVER_WRITTEN)
                .await
                .unwrap()
                .unwrap();
            grant.key()
        });
    }
    let keys = all.join_all().await;
    let later = Vault::File(open(directory.path()).unwrap());
    for key in keys {
        assert!(later.grant(&key).await.unwrap().value.is_some(), "{key:?}");
    }
}

#[tokio::test]
async fn only_the_owner_may_read_it_and_it_is_sealed() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("state").join("bowline");
    let (vault, path) = with_a_grant(&directory).await;
    drop(vault.claim_refresh(&grant("", None).key()).await.unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    // Nothing is left of drafts.
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    let bytes = fs::read(path).unwrap();
    for secret in ["access-secret", "refresh-secret", "client-secret", "alice"] {
        let found = bytes
            .windows(secret.len())
            .any(|at| at == secret.as_bytes());
        assert!(!found, "{secret} can be read");
    }
    assert!(!format!("{vault:?}").contains("secret"));
}

#[tokio::test]
async fn a_damaged_file_is_told_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (vault, path) = with_a_grant(directory.path()).await;
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    for damaged in [&whole[..whole.len() / 2], &changed, b"", b"{}"] {
        fs::write(&path, damaged).unwrap();
        let refused = open(directory.path()).unwrap_err();
        assert!(matches!(refused, VaultError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains("grants.sealed"), "{refused}");
        // A process that has it open writes nothing over it either.
        let key = grant("", None).key();
        vault.grant(&key).await.unwrap_err();
        let refused = vault.put_grant(&grant("two", None), Version(1)).await;
        assert!(matches!(refused, Err(VaultError::Damaged { .. })));
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
    // Once it is put back, everything goes on.
    fs::write(&path, whole).unwrap();
    let written = vault.put_grant(&grant("two", None), Version(1)).await;
    assert_eq!(written.unwrap(), Some(Version(2)));
}

#[tokio::test]
async fn a_lost_key_is_not_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("vault.key");
    let (_, path) = with_a_grant(directory.path()).await;
    let key = fs::read(&key_file).unwrap();
    fs::remove_file(&key_file).unwrap();
    let before = fs::read(&path).unwrap();
    let refused = open(directory.path()).unwrap_err();
    let is_lost = matches!(refused, VaultError::Keys(SealKeysError::Lost { .. }));
    assert!(is_lost, "{refused}");
    assert!(!key_file.exists());
    // Nor does another key open it.
    fs::write(&key_file, SealKeys::generate().unwrap()).unwrap();
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, VaultError::Damaged { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::write(&key_file, key).unwrap();
    let again = open(directory.path()).unwrap();
    let said = format!("the key file {}", key_file.display());
    assert!(again.to_string().ends_with(&said), "{again}");
}

#[tokio::test]
async fn what_a_newer_bowline_wrote_is_not_taken_for_absent() {
    let directory = tempfile::tempdir().unwrap();
    let (vault, _) = with_a_grant(directory.path()).await;
    let key = grant("", None).key();
    let newer = r#"{"layout":2,"value":"something else"}"#;
    vault.write(&key.slot(), Version(1), newer).await.unwrap();
    let refused = vault.grant(&key).await.unwrap_err();
    let is_newer = matches!(refused, VaultError::Newer { found: 2, known: 1 });
    assert!(is_newer, "{refused}");
}

#[tokio::test]
async fn what_cannot_be_understood_is_not_quoted() {
    let directory = tempfile::tempdir().unwrap();
    let (vault, _) = with_a_grant(directory.path()).await;
    let key = grant("", None).key();
    let wrong = r#"{"layout":1,"value":"access-secret"}"#;
    vault.write(&key.slot(), Version(1), wrong).await.unwrap();
    let refused = vault.grant(&key).await.unwrap_err();
    assert!(matches!(refused, VaultError::Malformed(_)), "{refused}");
    assert!(!format!("{refused} {refused:?}").contains("secret"));
}
