//! The pages of a sign-in that a person's browser shows.
//!
//! A request here is untrusted, and its query has secrets: nothing of it is logged, and the pages show only
//! what Bowline knows itself and, escaped, why an authorization server refused.

mod browser;
mod forms;
pub(super) mod html;
mod shown;

use bowline_system::clock;
use http::header::{LOCATION, REFERRER_POLICY, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;

use self::browser::BrowserCookie;
use self::forms::{return_page, start_page};
use self::html::{end_page, page};
use super::access::{count_unless_known, is_subresource};
use super::body::whole_body;
use super::query::Query;
use super::response::{self, ReplyBody, no_store};
use super::status;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::net::Peer;
use crate::oauth::{Delivery, DeliveryError, DeliveryRoute, Flow, FlowId, Secret};

/// The largest form that is read.
const MAX_FORM: usize = 4 * 1024;

/// Whether a path is one of these pages.
pub(super) fn is_page(path: &str) -> bool {
    path.starts_with("/oauth/")
}

/// Serves one of these pages.
pub(super) async fn serve(
    hub: &Hub,
    head: &Parts,
    body: Incoming,
    peer: Peer,
) -> Result<Response<ReplyBody>, Fault> {
    // No page of another origin may submit the form, not even of one that is allowed elsewhere.
    hub.guard.check_own(&head.uri, &head.headers)?;
    if is_subresource(&head.headers) {
        return Err(Fault::Origin);
    }
    count_unless_known(hub, head, peer)?;
    let query = Query::of(&head.uri)?;
    match (head.uri.path(), &head.method) {
        ("/oauth/start", &Method::GET) => start(hub, &query).await,
        ("/oauth/start", &Method::POST) => continue_sign_in(hub, &query).await,
        ("/oauth/callback", &Method::GET) => callback(hub, query, head, None).await,
        ("/oauth/callback", &Method::POST) => {
            let form = whole_body(body, MAX_FORM).await?;
            callback(hub, query, head, Some(&form)).await
        }
        ("/oauth/start" | "/oauth/callback", _) => Err(Fault::Method { allow: "GET, POST" }),
        _ => Err(Fault::NoSuchPath),
    }
}

/// The page that a sign-in begins with. It says who asks for what, before anybody types anything.
/// Looking at it changes nothing: chats and mail programs look at every link that they show.
async fn start(hub: &Hub, query: &Query) -> Result<Response<ReplyBody>, Fault> {
    let Some(flow) = flow_named(hub, query).await? else {
        return Ok(gone());
    };
    let Some(way) = flow.authorization() else {
        return Ok(gone());
    };
    if way.browser.is_some() {
        return Ok(gone());
    }
    Ok(start_page(&flow, way))
}

/// A person continues from the start page, once. What follows is tied to this browser: an authorization
/// server's response from another one is rejected.
async fn continue_sign_in(hub: &Hub, query: &Query) -> Result<Response<ReplyBody>, Fault> {
    let Some(flow) = flow_named(hub, query).await? else {
        return Ok(gone());
    };
    let browser = Secret::random().map_err(|_| Fault::Random)?;
    let is_first = hub.flows.bind_browser(&flow.id, &browser).await?;
    let (true, Some(way)) = (is_first, flow.authorization()) else {
        return Ok(gone());
    };
    let (Some(cookie), Ok(mut location)) = (
        browser_cookie(hub, &flow.id).set(&browser, hub.flows.settings().deadline),
        HeaderValue::try_from(&way.request.authorize_url),
    ) else {
        return Ok(gone());
    };
    location.set_sensitive(true);
    let mut response = no_store(response::empty(StatusCode::SEE_OTHER));
    let headers = response.headers_mut();
    headers.insert(SET_COOKIE, cookie);
    headers.insert(LOCATION, location);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

async fn flow_named(hub: &Hub, query: &Query) -> Result<Option<Flow>, Fault> {
    let Some(id) = query.get("flow").and_then(FlowId::parse) else {
        return Ok(None);
    };
    Ok(hub.flows.managed_flow(&id).await?)
}

/// A person's browser returns from the authorization server, or sends the form of the page that it returned
/// to. Only with the form does a code count: that page knows whether the browser left from the start page.
/// A form that nobody can have meant costs nothing: the page is shown again. A refusal brings nobody anything, and
/// needs no form.
async fn callback(
    hub: &Hub,
    query: Query,
    head: &Parts,
    form: Option<&[u8]>,
) -> Result<Response<ReplyBody>, Fault> {
    let (state, delivery) = match query.into_delivery() {
        Ok(delivered) => delivered,
        Err(fault) => {
            return Ok(page(
                status::of(&fault, None),
                "Not a sign-in",
                "<p>This address is incomplete.</p>",
            ));
        }
    };
    let shown = browser_cookie(hub, &FlowId::of(&state)).shown(&head.headers);
    let route = DeliveryRoute::Browser(shown.as_deref());
    let flows = &hub.flows;
    if let Delivery::Code { code, .. } = &delivery {
        let flow = match flows.awaiting(&state, &delivery, route).await {
            Ok(flow) => flow,
            Err(error) => return refused(error),
        };
        if let Some(page) = asked_first(&flow, code, form) {
            return Ok(page);
        }
    }
    let end = flows.deliver(&state, delivery, route).await;
    end.map(|end| end_page(&end)).or_else(refused)
}

/// The page that asks before a code is used, unless this is its form.
fn asked_first(flow: &Flow, code: &Secret, form: Option<&[u8]>) -> Option<Response<ReplyBody>> {
    let verifier = &flow.authorization()?.request.verifier;
    let now = clock::unix_millis();
    let status = match form {
        Some(form) if shown::is_considered(verifier, code, form, now) => return None,
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::OK,
    };
    let stamp = shown::stamp(verifier, code, now);
    Some(return_page(status, flow, &stamp))
}

/// The page of an answer that was not accepted.
fn refused(error: DeliveryError) -> Result<Response<ReplyBody>, Fault> {
    match error {
        DeliveryError::UnknownFlow => Ok(nobodys()),
        DeliveryError::IssuerMismatch => Ok(page(
            status::of(&Fault::WrongIssuer, None),
            "Not a sign-in",
            "<p>This response is not from the authorization server of this sign-in.</p>",
        )),
        DeliveryError::Store(error) => Err(error.into()),
        DeliveryError::Aborted => Err(Fault::Stopping),
    }
}

/// The same for a sign-in that never was, is over, or goes on in a browser, be it this one.
fn gone() -> Response<ReplyBody> {
    page(
        status::of(&Fault::NoSuchFlow, None),
        "No such sign-in",
        "<p>This sign-in has ended, or a browser has already continued with it.</p>\
         <p>If you have just continued here and the next page did not open, ask for a new link: \
         have your client call the tool <code>sign_in</code>.</p>",
    )
}

/// The same for an answer whose state is wrong, used or too old, and for one in another browser.
fn nobodys() -> Response<ReplyBody> {
    page(
        status::of(&Fault::NoSuchFlow, None),
        "No such sign-in",
        "<p>No sign-in of this browser waits for this answer: its <code>state</code> is wrong, or it was used \
         before, or the sign-in has ended.</p>\
         <p>For a new link, have your client call the tool <code>sign_in</code>.</p>",
    )
}

fn browser_cookie(hub: &Hub, id: &FlowId) -> BrowserCookie {
    BrowserCookie::of(hub.flows.public_url(), id)
}
