//! A header as the command line writes it: `Name: value`, with variables as in a file.

use std::fmt;

use http::HeaderMap;

use super::check::headers;
use super::{Environment, Server, variables};

/// A header for every request to a server. `Debug` does not show its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

/// Why a text is not a header. It never contains the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {help}")]
pub struct HeaderProblem {
    what: String,
    help: String,
}

// === impl Header ===

impl Header {
    /// Reads `Name: value`, and puts variables in.
    pub fn parse(written: &str, environment: &Environment<'_>) -> Result<Self, HeaderProblem> {
        let Some((name, value)) = written.split_once(':') else {
            return Err(HeaderProblem {
                what: "a header has no colon after its name".to_owned(),
                help: "write it like `Authorization: Bearer ${TOKEN}`".to_owned(),
            });
        };
        let name = name.trim();
        let value = variables::expanded(value.trim(), environment);
        let value = value.map_err(|problem| HeaderProblem {
            what: problem.message(name),
            help: problem.help(),
        })?;
        let header = Self {
            name: name.to_owned(),
            value,
        };
        header.add_to(&mut HeaderMap::new())?;
        Ok(header)
    }

    fn add_to(&self, headers: &mut HeaderMap) -> Result<(), HeaderProblem> {
        headers::add(headers, &self.name, &self.value).map_err(|error| HeaderProblem {
            what: error.what,
            help: error.help.to_owned(),
        })
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

// === impl Server ===

impl Server {
    /// Sets these headers, in place of its own of the same names. None may be given twice.
    pub fn set_headers(&mut self, headers: &[Header]) -> Result<(), HeaderProblem> {
        let mut given = HeaderMap::new();
        for header in headers {
            header.add_to(&mut given)?;
        }
        self.headers.extend(given);
        Ok(())
    }
}

// === impl HeaderProblem ===

impl HeaderProblem {
    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn help(&self) -> &str {
        &self.help
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "s3cret".to_owned())
    }

    #[test]
    fn variables_are_put_in_and_never_shown() {
        let header = Header::parse("Authorization: Bearer ${TOKEN}", &variables).unwrap();
        let mut server = Server::from_url("https://mcp.example/mcp").unwrap();
        server.set_headers(std::slice::from_ref(&header)).unwrap();
        assert_eq!(server.headers["authorization"], "Bearer s3cret");
        for shown in [format!("{header:?}"), format!("{server:?}")] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_value() {
        for (written, said) in [
            ("Bearer s3cret", "no colon"),
            ("a b: s3cret", "not the name of a header"),
            ("Host: s3cret", "set by Bowline"),
            ("X-Key: s3cret${MISSING}", "`MISSING`"),
            ("X-Key: s3cret\u{1}", "cannot have"),
        ] {
            let problem = Header::parse(written, &variables).unwrap_err().to_string();
            assert!(problem.contains(said), "{problem}");
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn a_name_is_given_once_and_wins_over_the_file() {
        let header = |value| Header::parse(value, &variables).unwrap();
        let mut server = Server::from_url("https://mcp.example/mcp").unwrap();
        server.set_headers(&[header("x-key: 1")]).unwrap();
        server.set_headers(&[header("X-Key: 2")]).unwrap();
        assert_eq!(server.headers["x-key"], "2");
        let twice = server.set_headers(&[header("x-key: 1"), header("X-Key: 2")]);
        assert!(twice.is_err());
    }
}
