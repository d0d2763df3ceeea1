//! Pages for people's browsers.

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};

use crate::front::response;
use crate::front::response::ReplyBody;
use crate::oauth::FlowOutcome;

/// What a page may do: nothing but look as it looks.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// How a sign-in ended, for the person who made it.
pub(in crate::front) fn end_page(end: &FlowOutcome) -> Response<ReplyBody> {
    match end {
        FlowOutcome::SignedIn => page(
            StatusCode::OK,
            "Signed in",
            "<p id=\"done\">You are signed in. You can close this page.</p>",
        ),
        FlowOutcome::Declined { said } => {
            let said = said.as_deref().map(|said| {
                let said = escaped(said);
                format!("<p>The authorization server answered <span id=\"said\">{said}</span>.</p>")
            });
            let text = "<p id=\"done\">You declined. You can close this page.</p>";
            let text = format!("{text}{}", said.unwrap_or_default());
            page(StatusCode::OK, "Not signed in", &text)
        }
        FlowOutcome::Failed(why) => page(
            StatusCode::BAD_GATEWAY,
            "Not signed in",
            &format!("<p id=\"done\">The sign-in failed: {}.</p>", escaped(why)),
        ),
    }
}

/// A page for a person's browser. `text` is HTML.
pub(in crate::front) fn page(status: StatusCode, title: &str, text: &str) -> Response<ReplyBody> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} - Bowline</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:32em;margin:4em auto;padding:0 1em}}</style>\
         <h1>{title}</h1>{text}</html>"
    );
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = response::no_store(response::whole(status, Some(html), page.into()));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(PAGE_POLICY),
    );
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Text as HTML.
pub(in crate::front) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
