//! Sealed values open where they were sealed, and nowhere else.

use bowline_wire::id::SessionId;
use proptest::prelude::{any, prop, proptest};

use super::*;
use crate::{Key, Part, SESSIONS_FILE, Version};

fn key() -> String {
    SealKeys::generate().unwrap()
}

fn keys(texts: &[&String]) -> SealKeys {
    let texts: Vec<_> = texts.iter().map(|text| text.as_str()).collect();
    SealKeys::parse(&texts.join(",")).unwrap()
}

fn place(session: u8, part: Part, version: u64) -> Vec<u8> {
    let id = SessionId::from_random([session; SessionId::BYTES]);
    Key::of("files", &id).bound(part, Version(version))
}

#[test]
fn a_value_opens_only_in_its_place() {
    let keys = keys(&[&key()]);
    let sealed = keys.seal(&place(1, Part::Record, 2), b"secret").unwrap();
    assert_eq!(
        keys.open(&place(1, Part::Record, 2), &sealed).unwrap(),
        b"secret"
    );
    for elsewhere in [
        place(2, Part::Record, 2),
        place(1, Part::Jar, 2),
        place(1, Part::Record, 3),
        Vec::new(),
    ] {
        assert_eq!(keys.open(&elsewhere, &sealed), Err(OpenError::Tampered));
    }
    let id = SessionId::from_random([1; SessionId::BYTES]);
    let other_server = Key::of("web", &id).bound(Part::Record, Version(2));
    assert_eq!(keys.open(&other_server, &sealed), Err(OpenError::Tampered));
}

#[test]
fn sealing_twice_shows_nothing_of_the_value() {
    let keys = keys(&[&key()]);
    let (one, two) = (keys.seal(b"p", b"secret"), keys.seal(b"p", b"secret"));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one, two);
    assert!(!one.windows(6).any(|part| part == b"secret"));
}

#[test]
fn the_newest_key_seals_and_all_open() {
    let (old, new) = (key(), key());
    let before = keys(&[&old]);
    let rotating = keys(&[&new, &old]);
    let after = keys(&[&new]);
    let sealed = before.seal(b"p", b"x").unwrap();
    assert_eq!(rotating.open(b"p", &sealed).unwrap(), b"x");
    assert_eq!(after.open(b"p", &sealed), Err(OpenError::UnknownKey));
    let sealed = rotating.seal(b"p", b"y").unwrap();
    assert_eq!(after.open(b"p", &sealed).unwrap(), b"y");
    assert_eq!(before.open(b"p", &sealed), Err(OpenError::UnknownKey));
    assert_eq!(rotating.ids()[0], after.ids()[0]);
    assert_ne!(before.ids()[0], after.ids()[0]);
}

#[test]
fn keys_are_read_as_people_write_them() {
    let (one, two) = (key(), key());
    let both = keys(&[&one, &two]);
    for text in [
        format!("{one}, {two}"),
        format!("{one}\n{two}\n"),
        format!("{},{},", one.trim_end_matches('='), two),
    ] {
        assert_eq!(SealKeys::parse(&text).unwrap(), both, "{text}");
    }
    for empty in ["", " \n", ","] {
        assert!(matches!(SealKeys::parse(empty), Err(SealKeysError::Empty)));
    }
    for bad in ["hunter2", "AAAA", &"A".repeat(86), "\u{fc}"] {
        let text = format!("{one},{bad}");
        let error = SealKeys::parse(&text).unwrap_err();
        assert!(matches!(error, SealKeysError::NotAKey { number: 2 }));
        assert!(!error.to_string().contains(bad));
    }
}

#[test]
fn nothing_prints_a_key() {
    let text = key();
    let keys = keys(&[&text]);
    let shown = format!("{keys:?}");
    assert_eq!(shown, format!("SealKeys({}, 0 older)", keys.ids()[0]));
    assert!(!text.contains(&keys.ids()[0]));
}

#[test]
fn the_file_store_makes_its_own_key_once() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("state/bowline");
    let made = beside_sessions(&directory).unwrap();
    assert_eq!(beside_sessions(&directory).unwrap(), made);
    let names: Vec<_> = std::fs::read_dir(&directory).unwrap().collect();
    assert_eq!(names.len(), 1, "no draft is left: {names:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(directory.join("seal.key")), 0o600);
        assert_eq!(mode(directory.clone()), 0o700);
    }
}

#[test]
fn racing_starts_agree_on_one_key() {
    let directory = tempfile::tempdir().unwrap();
    let start = || beside_sessions(directory.path()).unwrap().ids();
    let ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_key_file_says_what_is_wrong_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let missing = from_file(&path).unwrap_err();
    assert!(matches!(missing, SealKeysError::File { .. }), "{missing}");
    std::fs::write(&path, "# none\n").unwrap();
    let wrong = from_file(&path).unwrap_err();
    assert!(matches!(wrong, SealKeysError::InFile { .. }), "{wrong}");
    let (one, two) = (key(), key());
    std::fs::write(&path, format!("{one}\n{two}\n")).unwrap();
    assert_eq!(from_file(&path).unwrap(), keys(&[&one, &two]));
}

#[test]
fn a_lost_key_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(SESSIONS_FILE), b"").unwrap();
    let lost = beside_sessions(directory.path()).unwrap_err();
    assert!(matches!(lost, SealKeysError::Lost { .. }), "{lost}");
    assert!(!directory.path().join("seal.key").exists());
}

proptest! {
    #[test]
    fn values_come_back_whole(plain in prop::collection::vec(any::<u8>(), 0..300)) {
        let keys = keys(&[&key()]);
        let sealed = keys.seal(b"p", &plain).unwrap();
        assert_eq!(keys.open(b"p", &sealed).unwrap(), plain);
    }

    #[test]
    fn a_changed_or_cut_value_never_opens(at: prop::sample::Index, by in 1_u8..) {
        let keys = keys(&[&key()]);
        let sealed = keys.seal(b"p", b"secret").unwrap();
        let at = at.index(sealed.len());
        let mut changed = sealed.clone();
        changed[at] ^= by;
        assert!(keys.open(b"p", &changed).is_err());
        assert!(keys.open(b"p", &sealed[..at]).is_err());
    }

    #[test]
    fn garbage_never_opens(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let keys = keys(&[&key()]);
        assert!(keys.open(b"p", &bytes).is_err());
        let mut headed = keys.newest.head().to_vec();
        headed.extend(bytes);
        assert!(keys.open(b"p", &headed).is_err());
    }
}
