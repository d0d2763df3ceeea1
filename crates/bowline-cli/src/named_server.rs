//! A server that the command line names, by its name in the configuration or by its URL.

use std::path::{Path, PathBuf};

use bowline::config::{Config, Header, HeaderProblem, Server, ServerName, shown_url};

use crate::environment;
use crate::failure::Failure;
use crate::plan::config_of;

/// The configuration file that is read if none is given, below the person's configuration directory.
const DEFAULT_FILE: &str = "bowline/bowline.toml";

/// What a server is called that has no name that could be used.
const UNNAMED: &str = "server";

/// A server that the command line names.
pub(crate) struct NamedServer {
    /// As people know it.
    pub(crate) name: String,
    pub(crate) server: Server,
    /// Whether it is in the configuration.
    pub(crate) is_configured: bool,
}

impl NamedServer {
    /// The server of this name, or at this URL, and the configuration that it is from: this file or, for a name,
    /// the default one. A URL of a configured server is that server.
    pub(crate) fn read(written: &str, file: Option<&Path>) -> Result<(Self, Config), Failure> {
        if written.contains("://") {
            let config = config_of(file)?;
            return Ok((Self::at(written, &config)?, config));
        }
        let file = match file {
            Some(file) => file.to_owned(),
            None => default_file(written)?,
        };
        let config = config_of(Some(&file))?;
        Ok((Self::called(written, &config, &file)?, config))
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

    fn called(name: &str, config: &Config, file: &Path) -> Result<Self, Failure> {
        let shown = name.escape_debug();
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

/// The configuration in this file or, without one, in the default file.
pub(crate) fn configuration(file: Option<&Path>) -> Result<Config, Failure> {
    let file = match (file, person_file()) {
        (Some(file), _) => file.to_owned(),
        (None, Some(file)) if file.is_file() => file,
        (None, file) => {
            let missing = match file {
                Some(file) => format!(
                    "no server was given, and there is no configuration file {}",
                    file.display()
                ),
                None => "no server was given, and no configuration file".to_owned(),
            };
            let help =
                "give a server's URL, a command after `--`, or a configuration file with `-c`";
            return Err(Failure::usage(missing, help));
        }
    };
    config_of(Some(&file))
}

/// The union of this name, and the configuration that it is from, if it is no server.
pub(crate) fn union(
    written: &str,
    file: Option<&Path>,
) -> Result<Option<(Config, ServerName)>, Failure> {
    let is_file = |file: &PathBuf| file.is_file();
    let file = file
        .map(Path::to_owned)
        .or_else(|| person_file().filter(is_file));
    let (Ok(name), Some(file)) = (written.parse::<ServerName>(), file) else {
        return Ok(None);
    };
    let config = config_of(Some(&file))?;
    let is_union = config.unions.contains_key(&name);
    Ok(is_union.then_some((config, name)))
}

/// The configuration file of the person who runs this.
fn person_file() -> Option<PathBuf> {
    let directory = environment::directory("XDG_CONFIG_HOME", ".config");
    directory.map(|directory| directory.join(DEFAULT_FILE))
}

/// The configuration file that is read if none is given. `name` is not a URL, so there must be one.
fn default_file(name: &str) -> Result<PathBuf, Failure> {
    let shown = name.escape_debug();
    match person_file() {
        Some(file) if file.is_file() => Ok(file),
        Some(file) => Err(Failure::usage(
            format!(
                "`{shown}` is not a URL, and there is no configuration file {}",
                file.display()
            ),
            "give the server's full URL, or another file with `-c`",
        )),
        None => Err(Failure::usage(
            format!("`{shown}` is not a URL, and no configuration file was given"),
            "give the server's full URL, or the file with `-c`",
        )),
    }
}

/// The server with the headers of the command line.
pub(crate) fn with_headers(mut server: Server, written: &[String]) -> Result<Server, Failure> {
    let usage = |problem: HeaderProblem| {
        Failure::usage(format!("--header: {}", problem.what()), problem.help())
    };
    let headers = written
        .iter()
        .map(|header| Header::parse(header, &environment::variable))
        .collect::<Result<Vec<_>, _>>()
        .map_err(usage)?;
    server.set_headers(&headers).map_err(usage)?;
    Ok(server)
}

/// The name in logs and errors: the one in the file, or the host.
pub(crate) fn short_name(name: &str, server: &Server) -> anyhow::Result<ServerName> {
    let host = server.target.urls().first().and_then(|url| url.host());
    let mut names = [Some(name), host].into_iter().flatten();
    match names.find_map(|name| name.parse().ok()) {
        Some(name) => Ok(name),
        None => Ok(UNNAMED.parse()?),
    }
}
