//! The routes of a sign-in: the pages that a person's browser sees, and the way in for a host that
//! passes an authorization server's answer on.
//!
//! Whatever comes here was written by somebody else, and its query holds secrets: nothing of it is
//! logged, and nothing of it is shown but what Bowline knows itself and, escaped, what an authorization
//! server says of its refusal.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use serde_json::json;
use url::form_urlencoded;

use super::browser::BrowserCookie;
use super::reply::{self, ReplyBody, refuse};
use super::visitor::{is_for_a_page, known_caller, known_host, stranger};
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::oauth::{
    Authorization, Delivery, End, Flow, FlowId, NotDelivered, Secret, Via, hosts_elsewhere,
};
use crate::session::Caller;

/// The longest query that is read.
const MAX_QUERY: usize = 16 * 1024;

/// What a page may do: nothing but look as it looks.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// What the start page may do: the same, and send its form. Browsers hold every redirect that follows
/// against `form-action`, and where an authorization server sends people on to is known to nobody here.
const START_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

/// Whether a path is one of these routes.
pub(super) fn is_route(path: &str) -> bool {
    is_page(path) || path.starts_with("/api/mcp-oauth/")
}

/// Whether a path is one that people's browsers go to.
pub(super) fn is_page(path: &str) -> bool {
    path.starts_with("/oauth/")
}

/// Serves one of these routes.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    head: &Parts,
    address: IpAddr,
) -> Response<ReplyBody> {
    match route(shared, head, address).await {
        Ok(response) => response,
        Err(fault) => {
            let telling = fault.telling();
            shared.metrics.refused(telling.reason);
            tracing::info!(
                reason = telling.reason,
                status = telling.status.as_u16(),
                "refused"
            );
            refuse(&fault, None)
        }
    }
}

async fn route(
    shared: &Arc<Shared>,
    head: &Parts,
    address: IpAddr,
) -> Result<Response<ReplyBody>, Fault> {
    let (path, headers) = (head.uri.path(), &head.headers);
    // No other page may press a button here, nor one that is let in elsewhere.
    if is_page(path) {
        shared.guard.check_own(&head.uri, headers)?;
    }
    if is_page(path) && is_for_a_page(headers) {
        return Err(Fault::Origin);
    }
    // Whoever is known is so before anybody is counted.
    let caller = match path {
        "/api/mcp-oauth/callback" => known_host(shared, headers, address).map(|()| None)?,
        "/api/mcp-oauth/pending" => Some(known_caller(shared, headers, address)?),
        _ => stranger(shared, address).map(|()| None)?,
    };
    let query = Query::of(&head.uri)?;
    match (path, &head.method, caller) {
        ("/oauth/start", &Method::GET, _) => start(shared, &query, headers).await,
        ("/oauth/start", &Method::POST, _) => set_out(shared, &query, headers).await,
        ("/oauth/callback", &Method::GET, _) => came_back(shared, query, headers).await,
        ("/api/mcp-oauth/callback", &Method::POST, _) => passed_on(shared, query).await,
        ("/api/mcp-oauth/pending", &Method::GET, Some(caller)) => pending(shared, &caller).await,
        ("/oauth/start", ..) => Err(Fault::Method { allow: "GET, POST" }),
        ("/oauth/callback" | "/api/mcp-oauth/pending", ..) => Err(Fault::Method { allow: "GET" }),
        ("/api/mcp-oauth/callback", ..) => Err(Fault::Method { allow: "POST" }),
        _ => Err(Fault::NoSuchPath),
    }
}

/// The page that a sign-in begins with. It says who asks for what, before anybody types anything.
/// Looking at it changes nothing: chats and mail programs look at every link that they show.
async fn start(
    shared: &Shared,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    let Some(flow) = flow_named(shared, query).await? else {
        return Ok(gone());
    };
    let Some(way) = flow.authorization() else {
        return Ok(gone());
    };
    let shown = browser_cookie(shared, &flow.id).shown(headers);
    let is_anothers = way
        .browser
        .as_ref()
        .is_some_and(|browser| !shown.is_some_and(|shown| browser.is(&shown)));
    if is_anothers {
        return Ok(gone());
    }
    let mut response = page(StatusCode::OK, "Sign in", &start_text(&flow, way));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(START_POLICY),
    );
    // Without any, a browser would not say either that the form is ours.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    Ok(response)
}

/// A person goes on from the start page. What follows is tied to this browser: an authorization
/// server's answer from another one is refused.
async fn set_out(
    shared: &Shared,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    let Some(flow) = flow_named(shared, query).await? else {
        return Ok(gone());
    };
    let cookie = browser_cookie(shared, &flow.id);
    let fresh = Secret::random().map_err(|_| Fault::Random)?;
    let claimed = shared
        .sign_ins
        .claim(&flow.id, cookie.shown(headers).as_deref(), &fresh)
        .await?;
    let (Some(browser), Some(way)) = (claimed, flow.authorization()) else {
        return Ok(gone());
    };
    let (Some(cookie), Ok(mut location)) = (
        cookie.set(&browser, shared.sign_ins.settings().deadline),
        HeaderValue::try_from(&way.begun.authorize_url),
    ) else {
        return Ok(gone());
    };
    location.set_sensitive(true);
    let mut response = no_store(reply::empty(StatusCode::SEE_OTHER));
    let headers = response.headers_mut();
    headers.insert(SET_COOKIE, cookie);
    headers.insert(LOCATION, location);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

async fn flow_named(shared: &Shared, query: &Query) -> Result<Option<Flow>, Fault> {
    let Some(id) = query.get("flow").and_then(FlowId::parse) else {
        return Ok(None);
    };
    Ok(shared.sign_ins.linked(&id).await?)
}

fn start_text(flow: &Flow, way: &Authorization) -> String {
    let caller = match flow.caller_name() {
        "" => "You".to_owned(),
        caller => format!("The caller <strong>{}</strong>", escaped(caller)),
    };
    let host = |url: &str| {
        url.parse::<Uri>()
            .ok()
            .and_then(|url| url.authority().map(ToString::to_string))
    };
    let server = host(&flow.server_url).unwrap_or_default();
    let issuer = host(&flow.found.issuer).unwrap_or_default();
    let leads_to = host(&way.begun.authorize_url).unwrap_or_default();
    let elsewhere = match hosts_elsewhere(&flow.found) {
        hosts if hosts.is_empty() => String::new(),
        hosts => format!(
            "<p id=\"elsewhere\">The operator of this gateway lets it do so by way of <strong>{}</strong>.</p>",
            escaped(&hosts.join(", "))
        ),
    };
    format!(
        "<p>{caller} will be able to use the server <strong>{}</strong> ({}) in your name, as far as you allow at <strong>{}</strong>.</p>\
         {elsewhere}\
         <p>Go on only if you asked for this yourself.</p>\
         <form method=\"post\" action=\"?flow={}\"><button id=\"continue\">Continue to {}</button></form>",
        escaped(&flow.server),
        escaped(&server),
        escaped(&issuer),
        flow.id.as_str(),
        escaped(&leads_to),
    )
}

/// A person's browser comes back from the authorization server.
async fn came_back(
    shared: &Shared,
    query: Query,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    let (state, delivery) = match query.into_delivery() {
        Ok(delivered) => delivered,
        Err(_) => {
            return Ok(page(
                StatusCode::BAD_REQUEST,
                "Not a sign-in",
                "<p>Something is missing from this address.</p>",
            ));
        }
    };
    let shown = browser_cookie(shared, &FlowId::of(&state)).shown(headers);
    let delivered = shared
        .sign_ins
        .deliver(&state, delivery, Via::Browser(shown.as_deref()))
        .await;
    Ok(match delivered {
        Ok(end) => end_page(&end),
        Err(NotDelivered::Unknown) => gone(),
        Err(NotDelivered::Issuer) => page(
            StatusCode::BAD_REQUEST,
            "Not a sign-in",
            "<p>This answer is not from the authorization server that was asked.</p>",
        ),
        Err(NotDelivered::Pending(error)) => return Err(error.into()),
        Err(NotDelivered::GivenUp) => return Err(Fault::Stopping),
    })
}

/// How a sign-in ended, for the person who made it.
pub(crate) fn end_page(end: &End) -> Response<ReplyBody> {
    match end {
        End::SignedIn => page(
            StatusCode::OK,
            "Signed in",
            "<p id=\"done\">You are signed in. You can close this page.</p>",
        ),
        End::Declined { said } => {
            let said = said.as_deref().map(|said| {
                let said = escaped(said);
                format!("<p>The authorization server says: <q id=\"said\">{said}</q></p>")
            });
            let text = "<p id=\"done\">You declined. You can close this page.</p>";
            let text = format!("{text}{}", said.unwrap_or_default());
            page(StatusCode::OK, "Not signed in", &text)
        }
        End::Failed(why) => page(
            StatusCode::BAD_GATEWAY,
            "Not signed in",
            &format!("<p id=\"done\">It did not work: {}.</p>", escaped(why)),
        ),
    }
}

/// A host passes an authorization server's answer on.
async fn passed_on(shared: &Shared, query: Query) -> Result<Response<ReplyBody>, Fault> {
    let (state, delivery) = query.into_delivery()?;
    let delivered = shared
        .sign_ins
        .deliver(&state, delivery, Via::Courier)
        .await;
    match delivered {
        Ok(end) => Ok(no_store(reply::json(
            StatusCode::OK,
            json!({"result": end.name()}).to_string(),
        ))),
        Err(NotDelivered::Unknown) => Err(Fault::NoSuchFlow),
        Err(NotDelivered::Issuer) => Err(Fault::WrongIssuer),
        Err(NotDelivered::Pending(error)) => Err(error.into()),
        Err(NotDelivered::GivenUp) => Err(Fault::Stopping),
    }
}

/// The sign-ins that wait for the caller who asks.
async fn pending(shared: &Shared, caller: &Caller) -> Result<Response<ReplyBody>, Fault> {
    let mut waiting = Vec::new();
    for upstream in shared.routes.all().values() {
        let Some(account) = upstream.account(caller) else {
            continue;
        };
        if let Some(flow) = account.waiting().await? {
            waiting.push(json!({
                "server": flow.server,
                "elicitation_id": flow.id.as_str(),
                "url": flow.link(),
                "ends": flow.ends,
            }));
        }
    }
    Ok(no_store(reply::json(
        StatusCode::OK,
        json!({"pending": waiting}).to_string(),
    )))
}

// === Query ===

/// What a query says, each name once.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Result<Self, Fault> {
        let query = uri.query().unwrap_or_default();
        if query.len() > MAX_QUERY {
            return Err(Fault::QueryTooLong { limit: MAX_QUERY });
        }
        Ok(Self(
            form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        ))
    }

    /// A value, if it is there once: two could be two readers' two answers.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(known, _)| known == name);
        match (values.next(), values.next()) {
            (Some((_, value)), None) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// The state, and what came with it.
    pub(crate) fn into_delivery(self) -> Result<(String, Delivery), Fault> {
        let text = |name| self.get(name).map(str::to_owned);
        let state = text("state").ok_or(Fault::NoState)?;
        let iss = text("iss");
        match (text("error"), text("code")) {
            (Some(error), _) => {
                let description = text("error_description");
                let refused = Delivery::Error {
                    error,
                    description,
                    iss,
                };
                Ok((state, refused))
            }
            (None, Some(code)) => Ok((
                state,
                Delivery::Code {
                    code: Secret::new(code),
                    iss,
                },
            )),
            (None, None) => Err(Fault::NoCode),
        }
    }
}

// === Pages ===

/// The same for a sign-in that never was, is over, or is another browser's.
fn gone() -> Response<ReplyBody> {
    page(
        StatusCode::NOT_FOUND,
        "No such sign-in",
        "<p>This sign-in is over, or was begun in another browser. Ask for a new link.</p>",
    )
}

/// A page for a person's browser. `text` is HTML.
pub(crate) fn page(status: StatusCode, title: &str, text: &str) -> Response<ReplyBody> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} - Bowline</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:32em;margin:4em auto;padding:0 1em}}</style>\
         <h1>{title}</h1>{text}</html>"
    );
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = no_store(reply::whole(status, Some(html), page.into()));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(PAGE_POLICY),
    );
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn no_store(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn escaped(text: &str) -> String {
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

fn browser_cookie(shared: &Shared, id: &FlowId) -> BrowserCookie {
    BrowserCookie::of(shared.sign_ins.public_url(), id)
}
