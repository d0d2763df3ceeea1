use std::collections::HashSet;

use super::*;

#[test]
fn every_reason_has_a_name_and_a_meaning_of_its_own() {
    let mut names = HashSet::new();
    let mut meanings = HashSet::new();
    for row in Reason::ROWS {
        assert!(names.insert(row.name), "{}", row.name);
        assert!(meanings.insert(row.meaning), "{}", row.name);
        assert_eq!(*row, row.reason.row());
    }
}

#[test]
fn a_final_word_invites_no_retry() {
    for row in Reason::ROWS.iter().filter(|row| row.is_final) {
        assert_eq!(row.retry, Retry::No, "{}", row.name);
    }
}

#[test]
fn the_body_names_the_reason_and_echoes_the_id() {
    assert_eq!(
        Fault::UnknownSession.body(Some(RawId::new("\"a\""))),
        r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"Session not found","data":{"reason":"unknown_session"}}}"#
    );
}

#[test]
fn a_store_rejection_without_a_known_reason_points_to_the_log() {
    let text = Fault::StoreRefused(Refusal::Other).to_string();
    assert_eq!(
        text,
        "the session store rejected the operation (see the gateway's log); retry later"
    );
}
