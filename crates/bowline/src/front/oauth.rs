//! The routes of a sign-in: the pages that a person's browser sees, and the way in for a host that
//! passes an authorization server's answer on.
//!
//! Whatever comes here was written by somebody else, and its query holds secrets: nothing of it is
//! logged, and nothing of it is shown but what Bowline knows itself.

use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use serde_json::json;
use url::form_urlencoded;

use super::caller::bearer_key;
use super::reply::{self, ReplyBody, refuse};
use crate::fault::Fault;
use crate::gateway::Shared;
use crate::oauth::{Delivery, End, Flow, FlowId, NotDelivered, Secret, Via};

/// The longest query that is read.
const MAX_QUERY: usize = 16 * 1024;

/// What the browser keeps of the start page: one per flow, because a browser may be in several, and
/// cookies know no ports.
const COOKIE_PREFIX: &str = "bowline-sign-in-";

/// What a page may do: nothing but look as it looks.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

/// Whether a path is one of these routes.
pub(super) fn is_route(path: &str) -> bool {
    path.starts_with("/oauth/") || path.starts_with("/api/mcp-oauth/")
}

/// Serves one of these routes.
pub(super) async fn serve(shared: &Arc<Shared>, head: &Parts) -> Response<ReplyBody> {
    match route(shared, head).await {
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

async fn route(shared: &Arc<Shared>, head: &Parts) -> Result<Response<ReplyBody>, Fault> {
    let keyed = shared.callers.are_asked_for_keys();
    shared.guard.check(&head.uri, &head.headers, keyed)?;
    if !shared.oauth_visits.admits() {
        return Err(Fault::TooManyVisits);
    }
    let query = Query::of(&head.uri)?;
    match (head.uri.path(), &head.method) {
        ("/oauth/start", &Method::GET) => start(shared, &query, &head.headers).await,
        ("/oauth/start", &Method::POST) => set_out(shared, &query, &head.headers).await,
        ("/oauth/callback", &Method::GET) => came_back(shared, query, &head.headers).await,
        ("/api/mcp-oauth/callback", &Method::POST) => passed_on(shared, query, &head.headers).await,
        ("/api/mcp-oauth/pending", &Method::GET) => pending(shared, &head.headers).await,
        ("/oauth/start", _) => Err(Fault::Method { allow: "GET, POST" }),
        ("/oauth/callback" | "/api/mcp-oauth/pending", _) => Err(Fault::Method { allow: "GET" }),
        ("/api/mcp-oauth/callback", _) => Err(Fault::Method { allow: "POST" }),
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
    let shown = cookie(headers, &cookie_name(&flow.id));
    let is_anothers = way
        .browser
        .as_ref()
        .is_some_and(|browser| !shown.is_some_and(|shown| browser.is(&shown)));
    if is_anothers {
        return Ok(gone());
    }
    let mut response = page(StatusCode::OK, "Sign in", &start_text(&flow));
    // The form leads here, and from here to the authorization server: browsers ask about both.
    let leads_to = origin(&way.begun.authorize_url);
    let policy = format!("{PAGE_POLICY}; form-action 'self' {leads_to}");
    if let Ok(policy) = HeaderValue::try_from(policy) {
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        // Without any, a browser would not say either that the form is ours.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }
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
    let name = cookie_name(&flow.id);
    let fresh = Secret::random().map_err(|_| Fault::Random)?;
    let claimed = shared
        .sign_ins
        .claim(&flow.id, cookie(headers, &name).as_deref(), &fresh)
        .await
        .map_err(|error| Fault::Store(error.to_string().into()))?;
    let (Some(browser), Some(way)) = (claimed, flow.authorization()) else {
        return Ok(gone());
    };
    let secure = match shared.sign_ins.is_public_https() {
        true => "; Secure",
        false => "",
    };
    let cookie = format!(
        "{name}={}; Path=/oauth; HttpOnly; SameSite=Lax{secure}; Max-Age={}",
        browser.expose(),
        shared.sign_ins.settings().deadline.as_secs(),
    );
    let (Ok(mut cookie), Ok(mut location)) = (
        HeaderValue::try_from(cookie),
        HeaderValue::try_from(&way.begun.authorize_url),
    ) else {
        return Ok(gone());
    };
    cookie.set_sensitive(true);
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
    let flow = shared.sign_ins.flow(&id).await;
    flow.map_err(|error| Fault::Store(error.to_string().into()))
}

fn start_text(flow: &Flow) -> String {
    let caller = match flow.caller.as_str() {
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
    format!(
        "<p>{caller} will be able to use the server <strong>{}</strong> ({}) in your name, as far as you allow at <strong>{}</strong>.</p>\
         <p>Go on only if you asked for this yourself.</p>\
         <form method=\"post\" action=\"?flow={}\"><button id=\"continue\">Continue to {}</button></form>",
        escaped(&flow.server),
        escaped(&server),
        escaped(&issuer),
        flow.id.as_str(),
        escaped(&issuer),
    )
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let url = url.parse::<Uri>().unwrap_or_default();
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{scheme}://{authority}")
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
    let name = cookie_name(&FlowId::of(&state));
    let shown = cookie(headers, &name);
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
        Err(error @ (NotDelivered::Pending(_) | NotDelivered::GivenUp)) => {
            return Err(Fault::Store(error.to_string().into()));
        }
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
        End::Declined => page(
            StatusCode::OK,
            "Not signed in",
            "<p id=\"done\">You declined. You can close this page.</p>",
        ),
        End::Failed(why) => page(
            StatusCode::BAD_GATEWAY,
            "Not signed in",
            &format!("<p id=\"done\">It did not work: {}.</p>", escaped(why)),
        ),
    }
}

/// A host passes an authorization server's answer on.
async fn passed_on(
    shared: &Shared,
    query: Query,
    headers: &HeaderMap,
) -> Result<Response<ReplyBody>, Fault> {
    if let Some(token) = &shared.api_token
        && !bearer_key(headers).is_some_and(|shown| token.is_of(shown))
    {
        return Err(Fault::ApiToken);
    }
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
        Err(error @ (NotDelivered::Pending(_) | NotDelivered::GivenUp)) => {
            Err(Fault::Store(error.to_string().into()))
        }
    }
}

/// The sign-ins that wait for the caller who asks.
async fn pending(shared: &Shared, headers: &HeaderMap) -> Result<Response<ReplyBody>, Fault> {
    let caller = shared.callers.identify(headers)?;
    let mut waiting = Vec::new();
    for upstream in shared.routes.all().values() {
        let Some(account) = upstream.account(&caller) else {
            continue;
        };
        let flow = account.waiting().await;
        let flow = flow.map_err(|error| Fault::Store(error.to_string().into()))?;
        if let Some(flow) = flow {
            waiting.push(json!({
                "server": flow.server,
                "elicitation_id": flow.id.as_str(),
                "url": shared.sign_ins.link(&flow),
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
    fn get(&self, name: &str) -> Option<&str> {
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
            (Some(error), _) => Ok((state, Delivery::Error { error, iss })),
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

fn cookie_name(id: &FlowId) -> String {
    format!("{COOKIE_PREFIX}{}", id.as_str())
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let values = headers.get_all(COOKIE).iter();
    let mut pairs = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.to_owned())
}
