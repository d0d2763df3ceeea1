//! How Bowline signs in at servers for its callers, as meant.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use http::Uri;

use super::redirect::RedirectUri;
use super::{Config, ServerName};

/// What holds for signing in at every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth {
    /// Where people reach this gateway's pages; where it listens when `None`.
    pub public_url: Option<Uri>,
    /// The redirect URI of servers that have none of their own.
    pub redirect_uri: Option<RedirectUri>,
    /// The flow of servers that have none of their own, and no redirect URI of their own.
    pub flow: Option<Flow>,
    /// The program that shows prompts to people.
    pub host: SignInHost,
    /// How long a sign-in may take.
    pub deadline: Duration,
    /// How long a request waits for it before its client is told to retry.
    pub hold: Duration,
    /// What the keys in an elicitation's `_meta` begin with, before the `/`.
    pub meta_prefix: String,
}

/// How Bowline signs in at one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOAuth {
    /// Who does what.
    pub flow: Flow,
    /// The client that was registered beforehand, if one was.
    pub client: Option<Client>,
    /// What to ask for; what the server says when empty.
    pub scopes: Vec<String>,
    /// Where people come back to: there exactly with [`Flow::Drive`], be it the server's own or the
    /// one for all servers.
    pub redirect_uri: Option<RedirectUri>,
    /// Where Bowline's client metadata is published, as written: it is the client's id as well.
    pub client_metadata_url: Option<String>,
    /// The one authorization server that is asked, as it calls itself; whichever the server names
    /// when `None`. There wherever the client has a secret.
    pub issuer: Option<String>,
    /// Origins, such as `https://token.example`, at which endpoints of the authorization server may
    /// be besides its own.
    pub endpoints_elsewhere: Vec<String>,
    /// Whether authorization servers may be at private, loopback or link-local addresses.
    pub allow_private: bool,
    /// Whether tokens may go to endpoints of several origins.
    pub several_origins: bool,
    /// Whether an authorization server that does not list its PKCE methods is taken for one that supports S256.
    pub unlisted_pkce: bool,
}

/// A program that shows sign-in prompts to people, as far as prompts depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignInHost {
    /// Any that follows the specification.
    #[default]
    Any,
    /// docker-agent, with its terminal UI and its remote clients.
    DockerAgent,
}

/// Who does what in a sign-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Bowline does the whole sign-in, and the browser returns to its own page.
    #[default]
    Managed,
    /// The client does it all, and hands Bowline the tokens.
    ClientDriven,
    /// Bowline does it, and the browser returns to another program's page, which passes the code on.
    Drive,
}

/// A client that was registered beforehand at the authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id, which is no secret.
    pub id: String,
    /// Its secret; a public client has none.
    pub secret: Option<ClientSecret>,
}

/// The secret of a client. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(pub(super) String);

/// A prefix that keys in `_meta` cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub struct MetaPrefixProblem;

/// Checks a prefix of keys in `_meta`: labels between dots, of letters, digits and inner hyphens.
pub fn check_meta_prefix(prefix: &str) -> Result<(), MetaPrefixProblem> {
    let is_label = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphabetic())
            && label.ends_with(|c: char| c.is_ascii_alphanumeric())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    match prefix.split('.').all(is_label) {
        true => Ok(()),
        false => Err(MetaPrefixProblem),
    }
}

/// Why signing in would be unsafe, or could not be finished, on a listener that others can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub enum SignInProblem {
    /// Anybody who reaches the gateway could use the tokens of others.
    NoCallers,
    /// The browser could not return to a gateway that does not know its own URL.
    NoPublicUrl,
    /// Two servers have one URL, to which a grant belongs, and differ in how to sign in there.
    OneUrl,
}

// === impl OAuth ===

impl Default for OAuth {
    fn default() -> Self {
        Self {
            public_url: None,
            redirect_uri: None,
            flow: None,
            host: SignInHost::default(),
            deadline: Duration::from_secs(10 * 60),
            hold: Duration::from_secs(45),
            meta_prefix: SignInHost::default().meta_prefix().to_owned(),
        }
    }
}

impl OAuth {
    /// The flow of a server that says nothing about it.
    pub fn server_flow(&self) -> Flow {
        self.flow.unwrap_or(match self.redirect_uri {
            Some(_) => Flow::Drive,
            None => Flow::Managed,
        })
    }

    /// How Bowline signs in at a server that says nothing about it.
    pub fn server(&self) -> ServerOAuth {
        let flow = self.server_flow();
        let redirect_uri = self.redirect_uri.clone();
        ServerOAuth {
            flow,
            redirect_uri: redirect_uri.filter(|_| flow == Flow::Drive),
            ..ServerOAuth::default()
        }
    }
}

// === impl SignInHost ===

impl SignInHost {
    /// What the file calls docker-agent.
    pub const DOCKER_AGENT: &str = "docker-agent";

    /// The host with this name.
    pub fn named(name: &str) -> Option<Self> {
        (name == Self::DOCKER_AGENT).then_some(Self::DockerAgent)
    }

    /// What the keys in `_meta` begin with that it knows.
    pub fn meta_prefix(self) -> &'static str {
        match self {
            Self::Any => "bowline",
            Self::DockerAgent => "docker-agent",
        }
    }

    /// Whether its clients may sign in by themselves and answer a link with tokens.
    pub fn may_sign_in(self) -> bool {
        self == Self::DockerAgent
    }
}

// === impl ServerOAuth ===

impl ServerOAuth {
    /// Drive-flow with this redirect URI, and defaults for the rest.
    pub fn drive(redirect_uri: RedirectUri) -> Self {
        Self {
            flow: Flow::Drive,
            redirect_uri: Some(redirect_uri),
            ..Self::default()
        }
    }
}

// === impl Flow ===

impl Flow {
    /// The names of all.
    pub const NAMES: [&str; 3] = ["managed", "client-driven", "drive"];

    /// The flow with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Managed, Self::ClientDriven, Self::Drive];
        all.into_iter().find(|flow| flow.name() == name)
    }

    /// What the file calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::ClientDriven => "client-driven",
            Self::Drive => "drive",
        }
    }
}

// === impl ClientSecret ===

impl ClientSecret {
    /// The secret itself, for the authorization server only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(…)")
    }
}

// === impl Config ===

impl Config {
    /// What is in the way of signing in, each with the first server that it concerns.
    pub fn sign_in_problems(&self) -> Vec<(&ServerName, SignInProblem)> {
        let one_url = self.at_the_url_of_another();
        let one_url = one_url.map(|name| (name, SignInProblem::OneUrl));
        // A browser on this machine reaches a loopback address, and no Unix socket.
        let is_socket = self.listen.unix().is_some();
        if self.listen.is_local() && !is_socket {
            return one_url.into_iter().collect();
        }
        let first = |flow: Option<Flow>| {
            let mut servers = self.servers.iter();
            servers.find_map(|(name, server)| {
                let oauth = server.oauth.as_ref()?;
                flow.is_none_or(|flow| oauth.flow == flow).then_some(name)
            })
        };
        let uncalled = first(None).filter(|_| self.callers.is_empty() && !is_socket);
        let homeless = first(Some(Flow::Managed)).filter(|_| self.oauth.public_url.is_none());
        let uncalled = uncalled.map(|name| (name, SignInProblem::NoCallers));
        let homeless = homeless.map(|name| (name, SignInProblem::NoPublicUrl));
        let all = one_url.into_iter().chain(uncalled).chain(homeless);
        all.collect()
    }

    /// A server at which callers sign in under the URL of an earlier one, and otherwise than there.
    fn at_the_url_of_another(&self) -> Option<&ServerName> {
        let mut known = HashMap::new();
        let mut servers = self.servers.iter();
        servers.find_map(|(name, server)| {
            // How people are asked, and for what, may differ.
            let oauth = ServerOAuth {
                flow: Flow::default(),
                redirect_uri: None,
                scopes: Vec::new(),
                ..server.oauth.clone()?
            };
            let says = (oauth, &server.headers);
            let url = server.target.urls().first()?.to_string();
            let first = known.entry(url).or_insert_with(|| says.clone());
            (*first != says).then_some(name)
        })
    }
}

// === impl MetaPrefixProblem ===

impl MetaPrefixProblem {
    /// What is wrong.
    pub fn what(self) -> &'static str {
        "`meta_prefix` is not a prefix that keys in `_meta` can have"
    }

    /// What to do about it.
    pub fn help(self) -> &'static str {
        "use letters, digits and inner `-` and `.`, such as `bowline` or `com.example.app`; a `/` is added \
         behind it"
    }
}

// === impl SignInProblem ===

impl SignInProblem {
    /// What is wrong.
    pub fn what(self) -> &'static str {
        match self {
            Self::NoCallers => {
                "others can reach the gateway without a key, so anybody could use the tokens of others"
            }
            Self::NoPublicUrl => {
                "the browser could not return from a sign-in: the gateway's public URL is not known"
            }
            Self::OneUrl => {
                "an earlier server has the same URL and another client, issuer, `headers` or the \
                 like, and tokens belong to the URL"
            }
        }
    }

    /// What to do about it.
    pub fn help(self) -> &'static str {
        match self {
            Self::NoCallers => {
                "give everybody a key of their own in `[callers.NAME]`, or listen on 127.0.0.1"
            }
            Self::NoPublicUrl => {
                "add `public_url = \"https://gw.example.com\"` to `[oauth]`, or listen on 127.0.0.1"
            }
            Self::OneUrl => "write the same for both, or keep one of them",
        }
    }
}
