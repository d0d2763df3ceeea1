//! The demo's side of Streamable HTTP: methods, headers, statuses. Every answer is JSON.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde_json::Value;

use super::protocol::{self, Message, RpcError};
use super::sessions::Sessions;

/// The only path there is.
pub(super) const PATH: &str = "/mcp";

/// The largest body of a request, in bytes, and how long it may take to arrive.
pub(super) const BODY_LIMIT: usize = 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A request that is not answered, and why.
type Refused = (StatusCode, RpcError);

/// Serves one request.
pub(super) async fn serve<B>(sessions: &Sessions, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data: Send>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let served = match (head.uri.path(), &head.method) {
        // Only browsers send it, and no page has any business here.
        _ if head.headers.contains_key(ORIGIN) => {
            Err(refusal(StatusCode::FORBIDDEN, "pages are not served"))
        }
        (PATH, &Method::POST) => post(sessions, &head.headers, body).await,
        (PATH, &Method::DELETE) => delete(sessions, &head.headers),
        (PATH, _) => Err(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "only POST and DELETE are served",
        )),
        _ => Err(refusal(StatusCode::NOT_FOUND, "there is nothing here")),
    };
    let mut response = served.unwrap_or_else(|(status, error)| {
        json(status, &protocol::envelope(&Value::Null, Err(error)))
    });
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("POST, DELETE");
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

async fn post<B>(
    sessions: &Sessions,
    headers: &HeaderMap,
    body: B,
) -> Result<Response<Full<Bytes>>, Refused>
where
    B: Body<Data: Send>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if !is_json(headers) {
        return Err(refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be application/json",
        ));
    }
    let bytes = read(body).await?;
    let message = protocol::parse(&bytes).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
    match message {
        Message::Request(request) if request.method == "initialize" => {
            let answered = protocol::initialize(&request);
            let is_opened = answered.is_ok();
            let mut response = json(StatusCode::OK, &protocol::envelope(&request.id, answered));
            if is_opened {
                response.headers_mut().insert(SESSION_ID, open(sessions)?);
            }
            Ok(response)
        }
        Message::Request(request) => {
            let id = session_id(headers)?;
            let answered = sessions.with(id, |session| protocol::answer(session, &request));
            let answered = answered.ok_or_else(not_found)?;
            Ok(json(
                StatusCode::OK,
                &protocol::envelope(&request.id, answered),
            ))
        }
        Message::Unanswered => {
            let id = session_id(headers)?;
            sessions.with(id, |_| ()).ok_or_else(not_found)?;
            Ok(empty(StatusCode::ACCEPTED))
        }
    }
}

fn delete(sessions: &Sessions, headers: &HeaderMap) -> Result<Response<Full<Bytes>>, Refused> {
    let id = session_id(headers)?;
    if sessions.close(id) {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(not_found())
    }
}

fn open(sessions: &Sessions) -> Result<HeaderValue, Refused> {
    let failed = || refusal(StatusCode::INTERNAL_SERVER_ERROR, "no session id to be had");
    let id = sessions.open().map_err(|_| failed())?;
    HeaderValue::try_from(id).map_err(|_| failed())
}

/// The session a request names, which must also name a revision that is spoken here, or none.
fn session_id(headers: &HeaderMap) -> Result<&str, Refused> {
    let text = |value: &HeaderValue| value.to_str().map(protocol::is_supported);
    match headers.get(PROTOCOL_VERSION).map(text) {
        None | Some(Ok(true)) => {}
        _ => {
            return Err(refusal(
                StatusCode::BAD_REQUEST,
                "MCP-Protocol-Version names a revision that is not spoken here",
            ));
        }
    }
    let id = headers.get(SESSION_ID);
    let id = id.ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"))?;
    id.to_str().map_err(|_| not_found())
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next());
    media_type.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

async fn read<B>(body: B) -> Result<Bytes, Refused>
where
    B: Body<Data: Send>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(Limited::new(body, BODY_LIMIT));
    #[expect(clippy::disallowed_methods, reason = "the body is limited")]
    let read = tokio::time::timeout(BODY_TIMEOUT, body.as_mut().collect()).await;
    match read {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 1 MiB",
        )),
        Ok(Err(_)) => Err(refusal(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_) => Err(refusal(
            StatusCode::REQUEST_TIMEOUT,
            "the body took too long",
        )),
    }
}

fn refusal(status: StatusCode, message: &str) -> Refused {
    (status, RpcError::new(-32000, message))
}

fn not_found() -> Refused {
    let error = RpcError::new(-32001, "there is no such session");
    (StatusCode::NOT_FOUND, error)
}

fn json(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
