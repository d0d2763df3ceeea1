//! A server that the command line names, by its name in the configuration or by its URL.

use std::path::Path;

use bowline::config::{Config, Server, shown_url};

use crate::failure::Failure;

/// A server that the command line names.
pub(crate) struct NamedServer {
    /// As people know it.
    pub(crate) name: String,
    pub(crate) server: Server,
    /// Whether it is in the configuration.
    pub(crate) is_configured: bool,
}

impl NamedServer {
    /// The server of this name, or at this URL. A URL of a configured server is that server. `file` is where the
    /// configuration is from.
    pub(crate) fn find(
        written: &str,
        config: &Config,
        file: Option<&Path>,
    ) -> Result<Self, Failure> {
        match written.contains("://") {
            true => Self::at(written, config),
            false => Self::called(written, config, file),
        }
    }

    fn at(url: &str, config: &Config) -> Result<Self, Failure> {
        let unnamed = Server::from_url(url)
            .map_err(|problem| Failure::usage(problem.what(), problem.help()))?;
        let is_it =
            |server: &&Server| server.target.urls().first() == unnamed.target.urls().first();
        let configured = config.servers.values().find(is_it).cloned();
        Ok(Self {
            name: shown_url(url),
            is_configured: configured.is_some(),
            server: configured.unwrap_or(unnamed),
        })
    }

    fn called(name: &str, config: &Config, file: Option<&Path>) -> Result<Self, Failure> {
        let shown = name.escape_debug();
        let Some(file) = file else {
            return Err(Failure::usage(
                format!("`{shown}` is not a URL, and no configuration file was given"),
                "give the server's full URL, or the file with `-c`",
            ));
        };
        let mut servers = config.servers.iter();
        let found = servers.find(|(known, _)| known.as_ref() == name);
        let Some((_, server)) = found else {
            let names: Vec<&str> = config.servers.keys().map(AsRef::as_ref).collect();
            return Err(Failure::usage(
                format!("{} has no server `{shown}`", file.display()),
                format!("it has `{}`", names.join("`, `")),
            ));
        };
        Ok(Self {
            name: name.to_owned(),
            server: server.clone(),
            is_configured: true,
        })
    }
}
