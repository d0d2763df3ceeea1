//! Every key that there is.

use super::oauth::{EDITOR_OAUTH, OAUTH, SERVER_OAUTH};
use super::{Key, Kind, Shape};

/// The smallest `body_bytes` with which a client can still start a session.
pub(in crate::config) const SMALLEST_BODY: u32 = 1024;

/// The statuses that an answer of a server can have.
pub(in crate::config) const STATUSES: (u32, u32) = (200, 599);

/// The file itself.
pub(in crate::config) static FILE: Shape = Shape::new(&[
    Key::new(
        "listen",
        Kind::Text,
        "Where MCP clients connect: an IP address and a port.",
    )
    .default(r#""127.0.0.1:6270""#)
    .open(),
    Key::new(
        "admin",
        Kind::Text,
        "Where health and metrics are served: an IP address and a port, or `off`.",
    )
    .default(r#""127.0.0.1:6271""#)
    .open(),
    Key::new(
        "stop_timeout",
        Kind::Text,
        "How long answers that are under way may take once the gateway was told to stop.",
    )
    .default(r#""30s""#)
    .open(),
    Key::new(
        "hosts",
        Kind::Texts,
        "Names that the gateway is asked for by, besides its addresses, `localhost` and the name in `public_url`.",
    )
    .default("[]")
    .example(r#"["gw.internal"]"#)
    .open(),
    Key::new(
        "origins",
        Kind::Texts,
        "Origins of web pages that may use the gateway from a browser, besides its own and, on a loopback listener, this machine's.",
    )
    .default("[]")
    .example(r#"["https://app.example"]"#)
    .open(),
    Key::new("store", Kind::Table(&STORE), "Where sessions are kept."),
    Key::new(
        "limits",
        Kind::Table(&LIMITS),
        "How much the gateway takes on before it refuses.",
    ),
    Key::new(
        "oauth",
        Kind::Table(&OAUTH),
        "What holds for signing in at every server that has `oauth`.",
    ),
    Key::new(
        "servers",
        Kind::Named(&SERVER),
        "The MCP servers behind the gateway; clients reach each at `/mcp/NAME`.",
    ),
    Key::new(
        "callers",
        Kind::Named(&CALLER),
        "Who may use the gateway; nobody is asked for a key when there are none.",
    ),
]);

static STORE: Shape = Shape::new(&[
    Key::new("kind", Kind::Choice(&["memory", "file", "redis"]), "`memory`: in this process; sessions end with it. `file`: on this machine, for one gateway. `redis`: in a Redis or Valkey, for any number of gateways. Without a file of configuration it is `memory`.")
        .default(r#""file""#)
        .open(),
    Key::new("path", Kind::Text, "For `file`: the directory, `bowline` in the user's state directory when left out.")
        .example(r#""/var/lib/bowline""#)
        .open(),
    Key::new("url", Kind::Url, "For `redis`: where it is, `redis://` or, with TLS, `rediss://`.")
        .example(r#""rediss://redis.example.com:6379""#),
    Key::new("user", Kind::Text, "For `redis`: as whom to use it.")
        .example(r#""bowline""#)
        .open(),
    Key::new("password", Kind::Text, "For `redis`: its password.")
        .example(r#""${REDIS_PASSWORD}""#),
    Key::new("password_file", Kind::Text, "Instead of `password`: a file that holds it.")
        .example(r#""/run/secrets/redis""#)
        .open(),
    Key::new("ca_file", Kind::Text, "For `rediss://`: the certificates (PEM) to trust instead of the system's.")
        .example(r#""/etc/bowline/redis-ca.pem""#)
        .open(),
    Key::new("prefix", Kind::Text, "For `redis`: what its keys begin with; gateways with the same prefix share their sessions.")
        .default(r#""bowline""#)
        .open(),
    Key::new("timeout", Kind::Text, "How long to wait for the store.")
        .default(r#""2s""#)
        .open(),
    Key::new("cache", Kind::Integer(1), "How many sessions are kept at hand, so that not every message asks the store.")
        .default("10000")
        .open(),
    Key::new("grace", Kind::Text, "How long sessions that are at hand go on while the store cannot be reached.")
        .default(r#""30s""#)
        .open(),
    Key::new("on_unreachable_start", Kind::Choice(&["wait", "exit"]), "For `redis`, if it is not there at the start: `wait`: try again until it is; `exit`: give up.")
        .default(r#""wait""#)
        .open(),
    Key::new("seal_keys_file", Kind::Text, "A file with the keys that seal what is stored, newest first; `BOWLINE_SEAL_KEYS` wins over it.")
        .example(r#""/run/secrets/bowline-seal-keys""#)
        .open(),
]);

static LIMITS: Shape = Shape::new(&[
    Key::new(
        "sessions",
        Kind::Integer(1),
        "Sessions kept at the same time.",
    )
    .default("100000")
    .open(),
    Key::new(
        "streams",
        Kind::Integer(1),
        "Requests and streams under way at the same time.",
    )
    .default("20000")
    .open(),
    Key::new(
        "connections",
        Kind::Integer(1),
        "Connections of clients at the same time.",
    )
    .default("40000")
    .open(),
    Key::new(
        "connections_per_address",
        Kind::Integer(1),
        "Of these, how many one address may have that have not sent a request which was let in.",
    )
    .default("500")
    .open(),
    Key::new(
        "proxies",
        Kind::Texts,
        "Addresses and networks to which `connections_per_address` does not apply: the balancers in front.",
    )
    .default("[]")
    .example(r#"["10.0.0.0/8"]"#)
    .open(),
    Key::new(
        "body_bytes",
        Kind::Integer(SMALLEST_BODY),
        "The largest body of one message, in bytes.",
    )
    .default("8388608")
    .open(),
    Key::new(
        "session_idle",
        Kind::Text,
        "How long a session is kept after its last use.",
    )
    .default(r#""30m""#)
    .open(),
    Key::new(
        "session_max_age",
        Kind::Text,
        "How long a session may last, used or not; for ever when left out.",
    )
    .example(r#""24h""#)
    .open(),
]);

static SERVER: Shape = Shape::new(&[
    Key::new("url", Kind::Url, "The server's Streamable HTTP endpoint, or that of a balancer in front of it.")
        .example(r#""https://mcp.example.com/mcp""#),
    Key::new("endpoints", Kind::Urls, "Instead of `url`: the endpoint of each replica; Bowline is the balancer, and a session stays with its replica.")
        .example(r#"["http://10.0.0.1:8000/mcp", "http://10.0.0.2:8000/mcp"]"#),
    Key::new("headers", Kind::Secrets, "Headers added to every request to the server.")
        .example(r#"{ Authorization = "Bearer ..." }"#),
    Key::new("forward_headers", Kind::Texts, "Names of the client's headers that are passed on to the server; all others stay here.")
        .default("[]")
        .example(r#"["x-tenant"]"#)
        .open(),
    Key::new("ca_file", Kind::Text, "For `https://`: certificates (PEM) of authorities to trust besides the system's, at this server and where one signs in for it.")
        .example(r#""/etc/bowline/mcp-ca.pem""#)
        .open(),
    Key::new("connect_timeout", Kind::Text, "How long to wait for a connection.")
        .default(r#""10s""#)
        .open(),
    Key::new("call_timeout", Kind::Text, "How long a call may go without an answer or progress; for ever when left out.")
        .example(r#""60s""#)
        .open(),
    Key::new("health", Kind::Table(&HEALTH), "How the server's endpoints are looked after.")
        .example(r#"{ every = "5s", get = "/healthz" }"#),
    Key::new("recovery_budget", Kind::Text, "How long a client may wait while a lost session is mended; at least `1s`.")
        .default(r#""30s""#)
        .open(),
    Key::new("on_session_loss", Kind::Choice(&["recover", "tell"]), "`recover`: a lost session is mended, and the client does not notice; `tell`: the client gets a 404.")
        .default(r#""recover""#)
        .open(),
    Key::new("replay", Kind::ChoiceOrTexts(&["safe", "never"]), "What is sent again when it is not known whether it ran: `safe`: what may run twice by the protocol or by the tool's own hints; `never`: nothing; names of tools: what is safe, and these.")
        .default(r#""safe""#)
        .example(r#"["search"]"#)
        .open(),
    Key::new("drain_timeout", Kind::Text, "How long an endpoint that is no longer configured keeps its sessions.")
        .default(r#""10m""#)
        .open(),
    Key::new("session_lost", Kind::List(&SESSION_LOST), "Answers by which this server says that it lost a session, besides the protocol's 404."),
    Key::new("oauth", Kind::Table(&SERVER_OAUTH), "Bowline signs in at this server for its callers; may be empty.")
        .example("{}"),
])
.one_of(&["url", "endpoints"]);

static HEALTH: Shape = Shape::new(&[
    Key::new(
        "every",
        Kind::Text,
        "How often an endpoint is looked at, and how often its name is looked up anew.",
    )
    .default(r#""5s""#)
    .open(),
    // A path can hold a token, so it is not open.
    Key::new(
        "get",
        Kind::Text,
        "The path to GET; without it, a connection is enough.",
    )
    .example(r#""/healthz""#),
]);

static SESSION_LOST: Shape = Shape::new(&[
    Key::new(
        "status",
        Kind::Within(STATUSES.0, STATUSES.1),
        "The HTTP status of the answer; not 404, which always means a lost session.",
    )
    .example("400")
    .open(),
    Key::new(
        "code",
        Kind::Signed,
        "The JSON-RPC error code in the answer; any when left out.",
    )
    .example("-32000")
    .open(),
    // Servers say it to everybody, so it is no secret.
    Key::new(
        "text",
        Kind::Text,
        "Text that the answer's body contains; any when left out.",
    )
    .example(r#""No valid session ID provided""#)
    .open(),
])
.one_of(&["status"]);

static CALLER: Shape = Shape::new(&[
    Key::new(
        "key",
        Kind::Text,
        "The key that the caller sends as `Authorization: Bearer KEY`; at least 16 characters.",
    )
    .example(r#""${ALICE_KEY}""#),
    Key::new(
        "key_sha256",
        Kind::Text,
        "Instead of `key`: its SHA-256 hash in hexadecimal, so that the file holds no secret.",
    )
    .example(r#""0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#),
])
.one_of(&["key", "key_sha256"]);

/// The JSON file of an editor.
pub(in crate::config) static EDITOR: Shape = Shape::json(&[Key::new(
    "mcpServers",
    Kind::Named(&EDITOR_SERVER),
    "The MCP servers.",
)
.example(r#"{"files": {"url": "https://mcp.example.com/mcp"}}"#)])
.one_of(&["mcpServers"]);

static EDITOR_SERVER: Shape = Shape::json(&[
    Key::new("type", Kind::Text, "The transport.")
        .example(r#""http""#)
        .open(),
    Key::new("url", Kind::Url, "The server's Streamable HTTP endpoint.")
        .example(r#""https://mcp.example.com/mcp""#),
    Key::new("headers", Kind::Secrets, "Headers added to every request.")
        .example(r#"{"Authorization": "Bearer ..."}"#),
    Key::new("disabled", Kind::Flag, "Whether to leave the server out.").example("true"),
    Key::new(
        "oauth",
        Kind::Table(&EDITOR_OAUTH),
        "How Bowline signs in at this server.",
    )
    .example("{}"),
])
.one_of(&["url"]);

/// A key of this name in some table of the TOML file, if there is one.
pub(in crate::config) fn known(name: &str) -> Option<&'static Key> {
    let shapes = [
        &FILE,
        &STORE,
        &LIMITS,
        &OAUTH,
        &SERVER,
        &SERVER_OAUTH,
        &HEALTH,
        &SESSION_LOST,
        &CALLER,
    ];
    shapes.iter().find_map(|shape| shape.key(name))
}
