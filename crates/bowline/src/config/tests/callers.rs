//! The rules for callers and their keys.

use super::{KeyHash, good, parse, wrong};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn caller(line: &str) -> String {
    format!("[callers.alice]\n{line}\n")
}

#[test]
fn a_key_is_kept_as_its_hash() {
    let mut expected = [0; 32];
    let nibble = |at: usize| char::from(HASH.as_bytes()[at]).to_digit(16).unwrap() as u8;
    for (at, byte) in expected.iter_mut().enumerate() {
        *byte = nibble(2 * at) * 16 + nibble(2 * at + 1);
    }
    assert_eq!(KeyHash::of(b"abc"), KeyHash(expected));
    for hash in [HASH.to_owned(), HASH.to_uppercase()] {
        let config = good(&caller(&format!("key_sha256 = \"{hash}\"")));
        assert_eq!(config.callers["alice"].key, Some(KeyHash(expected)));
    }
    let config = good(&caller("key = \"0123456789abcdef\""));
    assert_eq!(
        config.callers["alice"].key,
        Some(KeyHash::of(b"0123456789abcdef"))
    );
    let config = good(&caller("key = \"${TOKEN}\""));
    assert_eq!(
        config.callers["alice"].key,
        Some(KeyHash::of(b"s3cret-of-16-chars"))
    );
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn keys_are_long_and_can_be_sent() {
    for (key, message) in [
        (
            "",
            "the key has fewer than 16 characters, so it can be guessed",
        ),
        (
            "0123456789abcde",
            "the key has fewer than 16 characters, so it can be guessed",
        ),
        (
            "0123456789 abcdef",
            "the key has a character that cannot be sent: a space, a line break or one beyond ASCII",
        ),
        (
            "0123456789abcdef\\n",
            "the key has a character that cannot be sent: a space, a line break or one beyond ASCII",
        ),
        (
            "0123456789abcdéf",
            "the key has a character that cannot be sent: a space, a line break or one beyond ASCII",
        ),
    ] {
        let found = wrong(&caller(&format!("key = \"{key}\"")));
        assert_eq!(found, (2, 7, message.to_owned()));
    }
}

#[test]
fn hashes_have_64_digits() {
    for bad in [
        "",
        "12",
        &HASH[1..],
        &format!("{HASH}0"),
        &HASH.replace('b', "g"),
    ] {
        let (line, column, message) = wrong(&caller(&format!("key_sha256 = \"{bad}\"")));
        assert_eq!((line, column), (2, 14));
        assert_eq!(
            message,
            "`key_sha256` is not a SHA-256 hash of 64 hexadecimal digits"
        );
    }
}

#[test]
fn one_of_key_and_hash() {
    assert_eq!(
        wrong(&caller("")).2,
        "`callers.alice` has neither `key` nor `key_sha256` nor `certificate_sha256`"
    );
    let both = format!("key = \"0123456789abcdef\"\nkey_sha256 = \"{HASH}\"");
    let found = wrong(&caller(&both));
    assert_eq!(
        found,
        (
            3,
            1,
            "`callers.alice` has both `key` and `key_sha256`".to_owned()
        )
    );
}

#[test]
fn callers_share_no_key() {
    let text = r#"
        [callers.zoe]
        key = "0123456789abcdef"
        [callers."a.b"]
        key = "${NOT_SET:-0123456789abcdef}"
    "#;
    let (line, _, message) = wrong(text);
    assert_eq!(line, 4);
    assert_eq!(
        message,
        "`callers.\"a.b\"` has the same key as `callers.zoe`"
    );
}

#[test]
fn names_are_checked() {
    let errors = parse("[callers.\"a b\"]\nkey = \"0123456789abcdef\"").unwrap_err();
    let problem = errors.iter().next().unwrap();
    assert_eq!(
        problem.message(),
        "the caller's name has a character that names cannot have"
    );
    let errors = parse("[callers.\"\"]\nkey = \"0123456789abcdef\"").unwrap_err();
    let problem = errors.iter().next().unwrap();
    assert_eq!(problem.help(), "give the caller a name, such as `alice`");
}
