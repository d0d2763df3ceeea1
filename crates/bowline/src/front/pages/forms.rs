//! The two pages with a button: the one that a sign-in starts with, and the one that the browser returns to.
//!
//! The cookie of a sign-in ([`super::browser`]) does not prove that a person saw the start page: cookies are
//! shared by all ports of a host, so a program on another port can set one in a person's browser. The storage
//! of an origin is not shared: another port is another origin. So the start page leaves a mark there when its
//! button is pressed, and the page at the end looks for it before the code is used:
//!
//! - with the mark, it submits its form by itself;
//! - without the mark, it shows a refusal in place of the form;
//! - if there are no scripts or no storage, the person decides, after reading who asks for what. The button
//!   appears after a while, and a form that comes before a person could have read the page is refused
//!   ([`super::shown`]).
//!
//! In every case the code is exchanged only for a form that a page of this origin submitted (see
//! [`crate::guard::Guard::check_own`]) after a person pressed a button below the name of the caller.

use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderValue, Response, StatusCode, Uri};

use super::html::{escaped, page};
use super::shown::{MARKED, SHOWN};
use crate::front::response::ReplyBody;
use crate::oauth::{Authorization, Flow, hosts_elsewhere};

/// Leaves the mark when the form is sent, and removes those of sign-ins that have expired. The button works once
/// the window has had the focus for a second: another page can open this one below itself and close in the middle
/// of a person's double click.
const START_SCRIPT: &str = r#"
const form = document.forms[0], prefix = "bowline-sign-in-", button = form.querySelector("button");
let pause;
const wait = () => {
  button.disabled = true;
  clearTimeout(pause);
  pause = setTimeout(() => (button.disabled = false), 1000);
};
addEventListener("focus", wait);
wait();
form.addEventListener("submit", () => {
  try {
    for (const key of Object.keys(localStorage))
      if (key.startsWith(prefix) && !(localStorage.getItem(key) * 1000 > Date.now())) localStorage.removeItem(key);
    localStorage.setItem(prefix + form.dataset.flow, form.dataset.ends);
  } catch {}
});
"#;

/// Sends the form where the mark is, and refuses where it is not.
const RETURN_SCRIPT: &str = r#"
const form = document.forms[0], question = document.getElementById("question");
try {
  if (localStorage.getItem("bowline-sign-in-" + form.dataset.flow) === form.dataset.ends) {
    question.hidden = true;
    form.elements.marked.value = "1";
    form.submit();
  } else {
    question.remove();
    document.getElementById("refused").hidden = false;
  }
} catch {}
"#;

/// Shows a button after a while; until then nobody can press it, by keyboard either. It works without scripts, and a
/// little longer than a form is refused.
const LATE_BUTTON: &str = "button{animation:appear 0s 1.5s both}@keyframes appear{from{visibility:hidden}to{visibility:visible}}";

/// What the start page may do: run its script, and send its form. It has no `form-action`: browsers apply
/// that to every redirect that follows, and where an authorization server redirects to is not known here.
const START_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-yGhczUQVZxS5z190X47uWQ40Ff3GY5mS9THHr2w4RDA='; frame-ancestors 'none'; base-uri 'none'";

/// What the page at the end may do: run its script, and send its form to this origin.
const RETURN_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-CzlEmouGZ8Oag/rzVLVS8rviSM1Zw3jaxiHdKDrUzAY='; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The page that a sign-in starts with. It says who asks for what, before anybody types anything.
pub(super) fn start_page(flow: &Flow, authorization: &Authorization) -> Response<ReplyBody> {
    let leads_to = host(&authorization.request.authorize_url);
    let text = format!(
        "{}{}<form id=\"continue\" method=\"post\" action=\"?flow={}\" {}><button>Continue to {}</button></form><script>{START_SCRIPT}</script>",
        request_text(flow),
        "<p>Continue only if you asked for this yourself.</p>",
        flow.id.as_str(),
        mark_of(flow),
        escaped(&leads_to),
    );
    with_script(page(StatusCode::OK, "Sign in", &text), START_POLICY)
}

/// The page that the browser returns to with a code. Its form is sent to the page's own address, which has
/// the code; nothing was done with it yet. `stamp`: see [`super::shown`].
pub(super) fn return_page(status: StatusCode, flow: &Flow, stamp: &str) -> Response<ReplyBody> {
    let text = format!(
        "<style>{LATE_BUTTON}</style><div id=\"question\">{}{}<form id=\"finish\" method=\"post\" {}>\
         <input type=\"hidden\" name=\"{SHOWN}\" value=\"{}\"><input type=\"hidden\" name=\"{MARKED}\">\
         <button>Finish the sign-in</button></form></div>\
         <div id=\"refused\" hidden>{}</div><script>{RETURN_SCRIPT}</script>",
        request_text(flow),
        "<p>Finish only if you asked for this yourself, and came here from this gateway's own page. Otherwise close this page.</p>",
        mark_of(flow),
        escaped(stamp),
        "<p>This browser did not continue from the start page of this sign-in, so the sign-in is not finished.</p>\
         <p>If you did not ask for it, somebody tried to use your account: close this page. If you did, ask for a \
         new link (have your client call the tool <code>sign_in</code>) and use one browser for all of it.</p>",
    );
    with_script(page(status, "Sign in", &text), RETURN_POLICY)
}

/// What the scripts need to know of a flow: neither is a secret to this origin's pages.
fn mark_of(flow: &Flow) -> String {
    format!(
        "data-flow=\"{}\" data-ends=\"{}\"",
        flow.id.as_str(),
        flow.ends
    )
}

fn request_text(flow: &Flow) -> String {
    let caller = match flow.caller_name() {
        "" => "You".to_owned(),
        caller => format!("The caller <strong>{}</strong>", escaped(caller)),
    };
    let elsewhere = match hosts_elsewhere(&flow.discovery) {
        hosts if hosts.is_empty() => String::new(),
        hosts => format!(
            "<p id=\"elsewhere\">The operator of this gateway also allows it the hosts <strong>{}</strong>.</p>",
            escaped(&hosts.join(", "))
        ),
    };
    format!(
        "<p>{caller} will be able to use the server <strong>{}</strong> ({}) in your name, as far as you allow at <strong>{}</strong>.</p>{elsewhere}",
        escaped(&flow.server),
        escaped(&host(&flow.server_url)),
        escaped(&host(&flow.discovery.issuer)),
    )
}

fn host(url: &str) -> String {
    let url = url.parse::<Uri>().ok();
    let authority = url.and_then(|url| url.authority().map(ToString::to_string));
    authority.unwrap_or_default()
}

/// A page with a form and a script. A browser that sends no referrer would not say either that the form is
/// this origin's.
fn with_script(mut page: Response<ReplyBody>, policy: &'static str) -> Response<ReplyBody> {
    let headers = page.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    page
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn each_policy_allows_its_own_script_alone() {
        for (script, policy) in [(START_SCRIPT, START_POLICY), (RETURN_SCRIPT, RETURN_POLICY)] {
            let hash = digest::digest(&digest::SHA256, script.as_bytes());
            let hash = STANDARD.encode(hash);
            let allowed = format!("script-src 'sha256-{hash}';");
            assert!(policy.contains(&allowed), "{allowed} is not in {policy}");
        }
    }
}
