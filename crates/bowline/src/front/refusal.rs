//! A fault that a front met, and the request that it answers.

use bowline_wire::message::{Message, RawId, RawIdBuf};
use http::Response;

use super::response::{self, ReplyBody};
use crate::config::ServerName;
use crate::fault::Fault;
use crate::hub::Hub;

/// A fault, and the request that met it.
#[derive(Debug)]
pub(super) struct Refusal {
    fault: Fault,
    /// The id of the request, if it is known and is to be echoed.
    id: Option<RawIdBuf>,
}

impl Refusal {
    pub(super) fn of(fault: Fault, request: Option<&Message>) -> Self {
        let id = request.and_then(Message::id).map(RawId::to_buf);
        Self { fault, id }
    }

    /// The response for the client, which is counted and logged.
    pub(super) fn respond(&self, hub: &Hub, server: Option<&ServerName>) -> Response<ReplyBody> {
        let id = self.id.as_ref().map(RawIdBuf::as_id);
        response::refuse_counted(&hub.metrics, server, &self.fault, id)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault, id: None }
    }
}
