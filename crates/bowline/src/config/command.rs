//! A server that is a process of each session's own: what is started, and with which environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::Environment;

/// Variables that a process gets from the gateway's own environment, if they are set there: what programs
/// need to find files, to speak the user's language and to reach the network. Any other may be a secret
/// of the gateway's.
const INHERITED: [&str; 40] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
];

/// A process to start for a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, as configured.
    pub env: BTreeMap<String, String>,
    /// What it gets of the gateway's own environment; where both name a variable, `env` counts.
    pub inherited: BTreeMap<String, String>,
    /// The directory that it runs in; `None` for the gateway's own.
    pub cwd: Option<PathBuf>,
}

impl Command {
    /// This program with these arguments, in an empty environment.
    pub fn new(program: impl Into<String>, args: Vec<String>) -> Self {
        Self {
            program: program.into(),
            args,
            env: BTreeMap::new(),
            inherited: BTreeMap::new(),
            cwd: None,
        }
    }

    /// The same with what a process gets of this environment.
    #[must_use]
    pub fn inheriting(mut self, environment: &Environment<'_>) -> Self {
        let inherited = INHERITED.iter();
        let inherited = inherited.filter_map(|name| Some(((*name).to_owned(), environment(name)?)));
        self.inherited = inherited.collect();
        self
    }

    /// Identifies what was configured, without telling it: a hash. What is inherited is not part of it, because
    /// it may differ between machines.
    pub(crate) fn identity(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |kind: &[u8], text: &[u8]| {
            context.update(kind);
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text);
        };
        add(b"p", self.program.as_bytes());
        self.args.iter().for_each(|arg| add(b"a", arg.as_bytes()));
        for (name, value) in &self.env {
            add(b"n", name.as_bytes());
            add(b"v", value.as_bytes());
        }
        if let Some(cwd) = &self.cwd {
            add(b"d", cwd.as_os_str().as_encoded_bytes());
        }
        BASE64_URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..16])
    }

    /// The program's own name, without its directory: what may be shown of a command.
    pub fn name(&self) -> &str {
        let name = self.program.rsplit('/').next();
        name.filter(|name| !name.is_empty()).unwrap_or("command")
    }
}

/// Arguments and variables may be secrets.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.name())
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
