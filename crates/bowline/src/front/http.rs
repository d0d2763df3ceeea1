//! Where every HTTP request of a client comes in: what holds for all of them (guard, CORS, who asks, limits), and which
//! front, or which page, serves it.

mod cross_origin;

use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use self::cross_origin::AllowedOrigin;
use super::arrival::Arrival;
use super::refusal::Refusal;
use super::response::ReplyBody;
use super::{embedder, http_sse, pages, streamable};
use crate::fault::Fault;
use crate::hub::Hub;
use crate::listener::Connection;
use crate::route::Service;

/// The methods of streamable HTTP, as `Allow` lists them.
const METHODS: &str = "GET, POST, DELETE";

/// Serves one request of a client.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    request: Request<Incoming>,
    connection: Arc<Connection>,
) -> Response<ReplyBody> {
    let peer = connection.peer;
    let (mut head, body) = request.into_parts();
    let path = head.uri.path();
    if pages::is_page(path) {
        let served = Box::pin(pages::serve(&hub, &head, body, peer)).await;
        return served.unwrap_or_else(|fault| Refusal::from(fault).respond(&hub, None));
    }
    let origin = match hub.guard.check(&head.uri, &head.headers) {
        Ok(origin) => origin.and_then(AllowedOrigin::of),
        Err(fault) => return Refusal::from(fault).respond(&hub, None),
    };
    if let Some(preflight) = origin.as_ref().and_then(|it| it.preflight(&head)) {
        return preflight;
    }
    // One function, because each that is awaited within another copies the request once more.
    let mut response = 'answered: {
        if path.starts_with("/api/") {
            let served = Box::pin(embedder::serve(&hub, &head, body, peer)).await;
            break 'answered served
                .unwrap_or_else(|fault| Refusal::from(fault).respond(&hub, None));
        }
        let (method, started) = (head.method.clone(), Instant::now());
        let arrival = match Arrival::admit(Arc::clone(&hub), &mut head) {
            Ok(arrival) => arrival,
            Err(fault) => {
                let response = Refusal::from(fault).respond(&hub, None);
                // What follows an unread body cannot be read, so the connection is closed, and that is said.
                break 'answered match body.is_end_stream() {
                    true => response,
                    false => closing(response),
                };
            }
        };
        // None of its requests was let in so far.
        if connection.is_anonymous()
            && let Err(why) = connection.assign_to(&arrival.caller)
        {
            let refusal = Refusal::from(why.fault());
            break 'answered closing(refusal.respond(&hub, Some(arrival.to.name())));
        }
        let to = arrival.to.clone();
        let served = match method {
            // Boxed, so that every connection's task is not as large as its rarest request.
            _ if arrival.service == Service::HttpSse => {
                Box::pin(http_sse::serve(arrival, &head, body, connection)).await
            }
            Method::POST => streamable::post(arrival, body).await,
            Method::GET => Box::pin(streamable::get(arrival)).await,
            Method::DELETE => Box::pin(streamable::delete(arrival)).await,
            _ => Err(Fault::Method { allow: METHODS }.into()),
        };
        let response = served.unwrap_or_else(|refusal| refusal.respond(&hub, Some(to.name())));
        let (status, after) = (response.status(), started.elapsed());
        let metrics = &hub.metrics;
        metrics.answered(to.answered(), to.name(), &method, status, after);
        response
    };
    if let Some(origin) = origin {
        origin.allow_reading(&mut response);
    }
    response
}

/// The same as the last response on its connection.
fn closing(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}
