//! The query of a request to the routes of sign-ins.

use http::Uri;
use url::form_urlencoded;

use crate::fault::Fault;
use crate::oauth::{Delivery, Secret};

/// The longest query that is read.
const MAX_QUERY: usize = 16 * 1024;

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
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
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
