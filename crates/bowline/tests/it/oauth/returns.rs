//! The page that a browser returns to: it names who asks, and nothing is done before its form is sent.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::kit::browser::{Browser, Opened, form_of};
use crate::kit::signing::{OAuthStage, token_of};

/// Where the authorization server sends a browser with a code.
fn back(stage: &OAuthStage, opened: &Opened, code: &str) -> String {
    let issuer = stage.words.lock().authority.clone();
    stage.callback_url(&[("state", &opened.state), ("code", code), ("iss", &issuer)])
}

#[tokio::test]
async fn returning_changes_nothing_until_the_form_is_sent() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let back = back(&stage, &opened, "code");
    let words = stage.words.lock().clone();
    // A preview, a reload, a step back in the history.
    for _ in 0..3 {
        let page = browser.get(&back).await;
        assert_eq!(page.status, 200, "{}", page.text);
        for known in [&words.server[7..], &words.authority[7..], "You will"] {
            assert!(page.text.contains(known), "{known}: {}", page.text);
        }
        assert!(!page.text.contains(&opened.state), "{}", page.text);
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("form-action 'self'"), "{policy}");
        assert!(policy.contains("script-src 'sha256-"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        // Otherwise the form's `Origin` would be `null`, which is refused.
        assert_eq!(page.headers["referrer-policy"], "same-origin");
        assert_eq!(page.headers["cache-control"], "no-store");
    }
    assert_eq!(stage.token_requests().len(), 0);
    assert_eq!(Browser::new().get(&back).await.status, 404);
    assert_eq!(Browser::new().submit(&back).await.status, 404);
    assert_eq!(browser.submit(&back).await.status, 200);
    assert_eq!(browser.get(&back).await.status, 404);
    assert_eq!(stage.token_requests().len(), 1);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn a_button_that_is_pressed_before_anybody_reads_finishes_nothing() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let back = back(&stage, &opened, "code");
    let other = back.replace("code=code", "code=other");
    let of_another = form_of(&browser.get(&other).await.text);
    let asked = Instant::now();
    let page = browser.get(&back).await;
    let form = form_of(&page.text);
    let rushed = browser.send(&back, form.clone()).await;
    // On a machine that stood still in between, that was no rush.
    if asked.elapsed() < Duration::from_secs(1) {
        assert_eq!(rushed.status, 409, "{}", rushed.text);
        assert_eq!(form_of(&rushed.text).len(), form.len());
        for forged in [
            "",
            "shown=0.AAAA&marked=1",
            "marked=1",
            &format!("{of_another}1"),
        ] {
            let refused = browser.send(&back, forged.to_owned()).await;
            assert_eq!(refused.status, 409, "{forged}: {}", refused.text);
        }
        assert_eq!(stage.token_requests().len(), 0);
        tokio::time::sleep(Duration::from_millis(1001)).await;
        let done = browser.send(&back, form).await;
        assert_eq!(done.status, 200, "{}", done.text);
    }
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn only_a_page_of_the_gateway_sends_the_form() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let back = back(&stage, &opened, "code");
    let own = format!("http://{}", stage.gateway.listen());
    for other in ["http://127.0.0.1:3000", "http://localhost:3000", "null"] {
        let refused = browser.submit_from(other, &back).await;
        assert_eq!(refused.status, 403, "{other}");
    }
    assert_eq!(stage.token_requests().len(), 0);
    assert_eq!(browser.submit_from(&own, &back).await.status, 200);
    assert_eq!(token_of(&client).await, "token-code");
}

#[tokio::test]
async fn a_flow_that_was_replaced_has_no_such_page() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let back = back(&stage, &opened, "code");
    assert_eq!(browser.get(&back).await.status, 200);
    let sign_in =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sign_in"}});
    let told = client.send(&sign_in).await.text;
    assert!(told.contains("/oauth/start?flow="), "{told}");
    assert_eq!(browser.get(&back).await.status, 404);
    assert_eq!(browser.submit(&back).await.status, 404);
    assert_eq!(stage.token_requests().len(), 0);
}

#[tokio::test]
async fn a_refusal_needs_no_form() {
    let stage = OAuthStage::set().await;
    let client = stage.client(None).await;
    let mut browser = Browser::new();
    let opened = browser.open(&stage.link(&client).await).await;
    let issuer = stage.words.lock().authority.clone();
    let refusal = [
        ("state", &*opened.state),
        ("error", "access_denied"),
        ("iss", &issuer),
    ];
    let page = browser.get(&stage.callback_url(&refusal)).await;
    assert!(page.text.contains("You declined"), "{}", page.text);
    assert!(page.text.contains("access_denied"), "{}", page.text);
}
