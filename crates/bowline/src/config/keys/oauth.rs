//! The keys that say how Bowline signs in at servers.

use super::{Key, Kind, Shape};

/// The table `oauth`, for all servers.
pub(super) static OAUTH: Shape = Shape::new(&[
    Key::new("public_url", Kind::Url, "Where people reach this gateway's pages; on a loopback listener it is `http://` and `listen` when left out.")
        .example(r#""https://gw.example.com""#),
    Key::new("redirect_uri", Kind::Url, "Where people come back to after signing in, for every server that does not say otherwise: drive-flow.")
        .example(r#""https://app.example/cb""#),
    Key::new("deadline", Kind::Text, "How long a sign-in may take.")
        .default(r#""10m""#)
        .open(),
    Key::new("hold", Kind::Text, "How long a request waits for a sign-in before its client is told to come back, and how long finding the authorization server may take.")
        .default(r#""45s""#)
        .open(),
    Key::new("meta_prefix", Kind::Text, "What the keys in an elicitation's `_meta` begin with; a `/` is added behind it.")
        .default(r#""bowline""#)
        .open(),
]);

/// The table `oauth` of a server.
pub(super) static SERVER_OAUTH: Shape = Shape::new(SERVER_KEYS);

/// The same in an editor's file.
pub(super) static EDITOR_OAUTH: Shape = Shape::json(SERVER_KEYS);

const SERVER_KEYS: &[Key] = &[
    Key::new("flow", Kind::Choice(&["managed", "client-driven", "drive"]), "`managed`: Bowline does it all; `client-driven`: the client does, and hands Bowline the tokens; `drive`: Bowline does it, and people come back to `redirect_uri`. When left out it is `drive` where there is a `redirect_uri`, here or for all servers, and `managed` otherwise.")
        .example(r#""drive""#)
        .open(),
    Key::new("client_id", Kind::Text, "The id of a client that was registered beforehand.")
        .example(r#""bowline""#)
        .open(),
    Key::new("client_secret", Kind::Text, "Its secret; a public client has none. It needs `issuer`.")
        .example(r#""${CLIENT_SECRET}""#),
    Key::new("scopes", Kind::Texts, "What to ask for; what the server says when left out.")
        .default("[]")
        .example(r#"["files:read"]"#)
        .open(),
    Key::new("redirect_uri", Kind::Url, "For `drive`: where people come back to after signing in; before the one for all servers.")
        .example(r#""https://app.example/cb""#),
    Key::new("client_metadata_url", Kind::Url, "Where Bowline's client metadata is published, `https://` with a path; authorization servers that support it need no registration.")
        .example(r#""https://gw.example.com/client.json""#),
    Key::new("issuer", Kind::Url, "The one authorization server that is asked, as it calls itself; whichever the server names when left out.")
        .example(r#""https://login.example.com""#),
    Key::new("endpoints_elsewhere", Kind::Texts, "Origins besides its own at which the authorization server may have endpoints.")
        .default("[]")
        .example(r#"["https://token.example.com"]"#),
    Key::new("allow_private", Kind::Flag, "Whether authorization servers may be at private, loopback or link-local addresses, also where the server itself is not.")
        .default("false")
        .open(),
    Key::new("several_origins", Kind::Flag, "Whether `endpoints` may be of several origins, all of which then get the tokens of the server's callers.")
        .default("false")
        .open(),
];
