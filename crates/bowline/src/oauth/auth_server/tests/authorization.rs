use super::*;

#[tokio::test]
async fn a_sign_in_begins_with_all_that_is_needed() {
    let stage = Stage::start().await;
    let begun = stage.begin(&public(), &["a", "b c"]).await;
    let (endpoint, query) = begun.authorize_url.split_once('?').unwrap();
    assert_eq!(endpoint, format!("{}/authorize", stage.discovery.issuer));
    let challenge = digest(&SHA256, begun.verifier.expose().as_bytes());
    assert_eq!(
        pairs(query),
        expected([
            ("tenant", "1"),
            ("response_type", "code"),
            ("client_id", "the client"),
            ("redirect_uri", REDIRECT),
            ("scope", "a b c"),
            ("state", begun.state.expose()),
            ("code_challenge", &BASE64_URL_SAFE_NO_PAD.encode(challenge)),
            ("code_challenge_method", "S256"),
            ("resource", RESOURCE),
        ])
    );
    assert!(begun.verifier.expose().len() >= 43);
    assert!(begun.state.expose().len() >= 22, "128 bits");
    assert_eq!(begun.scopes, ["a", "b c"]);
    let other = stage.begin(&public(), &[]).await;
    assert_ne!(other.state, begun.state);
    assert_ne!(other.verifier, begun.verifier);
    assert!(!other.authorize_url.contains("scope"));
    assert!(!format!("{begun:?}").contains(begun.state.expose()));
    stage.script.finish();
}

#[tokio::test]
async fn a_lasting_grant_is_consented_to() {
    let stage = Stage::start().await;
    let begun = stage.begin(&public(), &["a", "offline_access"]).await;
    assert!(begun.authorize_url.ends_with("&prompt=consent"));
    let begun = stage.begin(&public(), &["a"]).await;
    assert!(!begun.authorize_url.contains("prompt"));
}
