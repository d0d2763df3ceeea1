//! The keys that say how Bowline signs in at servers.

use super::{Key, Kind, Shape};
use crate::config::{Flow, SignInHost};

/// The table `oauth`, for all servers.
pub(super) static OAUTH: Shape = Shape::new(&[
    Key::new("public_url", Kind::Url, "The URL of this gateway's sign-in pages; on a loopback listener it is `http://` and `listen` when left out.")
        .example(r#""https://gw.example.com""#),
    Key::new("redirect_uri", Kind::Url, "Where people return to after signing in, for every server without its own: drive-flow.")
        .example(r#""https://app.example/cb""#),
    Key::new("flow", Kind::Choice(&Flow::NAMES), "The `flow` of every server without its own `flow` or `redirect_uri`.")
        .example(r#""drive""#)
        .open(),
    Key::new("host", Kind::Choice(&[SignInHost::DOCKER_AGENT]), "The program that shows the prompts, if it is one that needs its own: `docker-agent` for its terminal UI, its remote clients and its hosts. It sets `meta_prefix`, and prompts of `managed` have what these need.")
        .example(r#""docker-agent""#)
        .open(),
    Key::new("deadline", Kind::Text, "How long a sign-in may take.")
        .default(r#""10m""#)
        .open(),
    Key::new("hold", Kind::Text, "How long a request waits for a sign-in before its client is asked to retry later, and how long discovery of the authorization server may take.")
        .default(r#""45s""#)
        .open(),
    Key::new("meta_prefix", Kind::Text, "The prefix of the keys in an elicitation's `_meta`; a `/` is added after it. With a `host` it is the host's when left out.")
        .default(r#""bowline""#)
        .open(),
]);

/// The table `oauth` of a server.
pub(super) static SERVER_OAUTH: Shape = Shape::new(SERVER_KEYS);

/// The same in an editor's file.
pub(super) static EDITOR_OAUTH: Shape = Shape::json(SERVER_KEYS);

const SERVER_KEYS: &[Key] = &[
    Key::new("flow", Kind::Choice(&Flow::NAMES), "`managed`: Bowline does everything; `client-driven`: the client does, and gives Bowline the tokens; `drive`: Bowline does it, and people return to `redirect_uri`. When left out it is `drive` where there is a `redirect_uri`, else that of `[oauth]`, else `drive` where there is a `redirect_uri` there, and `managed` otherwise.")
        .example(r#""drive""#)
        .open(),
    Key::new("client_id", Kind::Text, "The id of a client that was registered beforehand.")
        .example(r#""bowline""#)
        .open(),
    Key::new("client_secret", Kind::Text, "Its secret; a public client has none. It needs `issuer`.")
        .example(r#""${CLIENT_SECRET}""#),
    Key::new("scopes", Kind::Texts, "The scopes to request; those that the server names when left out.")
        .default("[]")
        .example(r#"["files:read"]"#)
        .open(),
    Key::new("redirect_uri", Kind::Url, "For `drive`: where people return to after signing in; wins over that of `[oauth]`.")
        .example(r#""https://app.example/cb""#),
    Key::new("client_metadata_url", Kind::Url, "Where Bowline's client metadata is published, `https://` with a path; authorization servers that support it need no registration.")
        .example(r#""https://gw.example.com/client.json""#),
    Key::new("issuer", Kind::Url, "The only authorization server that is used, as it calls itself; the one that the server names when left out.")
        .example(r#""https://login.example.com""#),
    Key::new("endpoints_elsewhere", Kind::Texts, "Origins besides its own at which the authorization server may have endpoints.")
        .default("[]")
        .example(r#"["https://token.example.com"]"#),
    Key::new("allow_private", Kind::Flag, "Whether authorization servers may be at private, loopback or link-local addresses, also where the server itself is not.")
        .default("false")
        .open(),
    Key::new("several_origins", Kind::Flag, "Whether `endpoints` may be of several origins, all of which then get the callers' tokens.")
        .default("false")
        .open(),
    Key::new("unlisted_pkce", Kind::Flag, "Whether the authorization server may leave `code_challenge_methods_supported` out of its metadata. Bowline uses PKCE with S256 there all the same.")
        .default("false")
        .open(),
];
