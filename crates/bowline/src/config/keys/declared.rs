//! Every key that there is.

use super::oauth::{EDITOR_OAUTH, OAUTH, SERVER_OAUTH};
use super::union::{NAMED_UNION, TOOLS, UNION};
use super::{Key, Kind, Shape};
use crate::config::Transport;

/// The smallest `body_bytes` with which a client can still start a session.
pub(in crate::config) const SMALLEST_BODY: u32 = 1024;

/// The statuses that an answer of a server can have.
pub(in crate::config) const STATUSES: (u32, u32) = (200, 599);

/// The file itself.
pub(in crate::config) static FILE: Shape = Shape::new(&[
    Key::new(
        "listen",
        Kind::Text,
        "Where MCP clients connect: an IP address and a port, or a Unix socket (`unix:/run/bowline.sock`).",
    )
    .default(r#""127.0.0.1:6270""#)
    .open(),
    Key::new(
        "admin",
        Kind::Text,
        "Where health and metrics are served: an IP address and a port, a Unix socket, or `off`.",
    )
    .default(r#""127.0.0.1:6271""#)
    .open(),
    Key::new(
        "stop_timeout",
        Kind::Text,
        "How long answers in progress may take once the gateway is stopping.",
    )
    .default(r#""30s""#)
    .open(),
    Key::new(
        "hosts",
        Kind::Texts,
        "Names by which clients reach the gateway (`Host`), besides its addresses, `localhost` and the name in `public_url`.",
    )
    .default("[]")
    .example(r#"["gw.internal"]"#)
    .open(),
    Key::new(
        "origins",
        Kind::Texts,
        "Origins of web pages that may use the gateway from a browser (CORS), besides its own and, on a loopback listener, this machine's.",
    )
    .default("[]")
    .example(r#"["https://app.example"]"#)
    .open(),
    Key::new(
        "tls",
        Kind::Table(&TLS),
        "The certificate with which MCP clients are served by TLS (1.2 and 1.3); without it they are served by plain HTTP. A changed file is read again at once.",
    ),
    Key::new("store", Kind::Table(&STORE), "Where sessions are stored."),
    Key::new(
        "peers",
        Kind::Table(&PEERS),
        "How gateways on one Redis reach each other: what lives in one of them (a process) is used through all of them.",
    ),
    Key::new(
        "limits",
        Kind::Table(&LIMITS),
        "The limits above which the gateway rejects requests.",
    ),
    Key::new(
        "oauth",
        Kind::Table(&OAUTH),
        "OAuth settings for every server that has `oauth`.",
    ),
    Key::new(
        "servers",
        Kind::Named(&SERVER),
        "The MCP servers behind the gateway; clients reach each at `/mcp/NAME`.",
    ),
    Key::new(
        "union",
        Kind::Table(&UNION),
        "What `/mcp` is where there are several servers: all of them as one.",
    ),
    Key::new(
        "unions",
        Kind::Named(&NAMED_UNION),
        "Some of the servers as one; clients reach each union at `/mcp/NAME`.",
    ),
    Key::new(
        "callers",
        Kind::Named(&CALLER),
        "Who may use the gateway, by a key, a certificate, or either; without any caller, nothing is required.",
    ),
]);

static TLS: Shape = Shape::new(&[
    Key::new(
        "cert",
        Kind::Text,
        "A file with the certificate (PEM), and after it its chain.",
    )
    .example(r#""/etc/bowline/tls.crt""#)
    .open(),
    Key::new(
        "key",
        Kind::Text,
        "A file with the certificate's private key (PEM), without a passphrase.",
    )
    .example(r#""/etc/bowline/tls.key""#)
    .open(),
]);

static STORE: Shape = Shape::new(&[
    Key::new("kind", Kind::Choice(&["memory", "file", "redis"]), "`memory`: in this process; sessions end with it. `file`: on this machine, for one gateway. `redis`: in a Redis or Valkey, for any number of gateways. Without a configuration file it is `memory`.")
        .default(r#""file""#)
        .open(),
    Key::new("path", Kind::Text, "For `file`: the directory, `bowline` in the user's state directory when left out.")
        .example(r#""/var/lib/bowline""#)
        .open(),
    Key::new("url", Kind::Url, "For `redis`: where it is, `redis://` or, with TLS, `rediss://`.")
        .example(r#""rediss://redis.example.com:6379""#),
    Key::new("user", Kind::Text, "For `redis`: the user name.")
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
    Key::new("prefix", Kind::Text, "For `redis`: the prefix of its keys; gateways with the same prefix share their sessions.")
        .default(r#""bowline""#)
        .open(),
    Key::new("timeout", Kind::Text, "How long to wait for an operation of the store.")
        .default(r#""2s""#)
        .open(),
    Key::new("cache", Kind::Integer(1), "How many sessions this gateway caches in memory, so that not every message asks the store.")
        .default("10000")
        .open(),
    Key::new("grace", Kind::Text, "How long cached sessions are served while the store is unavailable.")
        .default(r#""30s""#)
        .open(),
    Key::new("on_unreachable_start", Kind::Choice(&["wait", "exit"]), "For `redis`, if it is unavailable at the start: `wait`: retry until it is available; `exit`: give up.")
        .default(r#""wait""#)
        .open(),
    Key::new("seal_keys_file", Kind::Text, "A file with the keys that encrypt what is stored, newest first; `BOWLINE_SEAL_KEYS` takes precedence.")
        .example(r#""/run/secrets/bowline-seal-keys""#)
        .open(),
]);

static PEERS: Shape = Shape::new(&[
    Key::new(
        "listen",
        Kind::Text,
        "Where the other gateways connect: an IP address and a port of its own.",
    )
    .example(r#""10.0.0.5:6272""#)
    .open(),
    Key::new(
        "advertise",
        Kind::Text,
        "The host and port at which the others find it; `listen` when left out.",
    )
    .example(r#""gw-1.internal:6272""#)
    .open(),
    Key::new(
        "secret",
        Kind::Text,
        "What all gateways on the store know and nobody else, at least 32 characters: it encrypts and authenticates what they send each other.",
    )
    .example(r#""${BOWLINE_PEERS_SECRET}""#),
    Key::new(
        "secret_file",
        Kind::Text,
        "Instead of `secret`: a file that holds it.",
    )
    .example(r#""/run/secrets/bowline-peers""#)
    .open(),
])
.one_of(&["secret", "secret_file"]);

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
        "Requests and streams in progress at the same time.",
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
        "children",
        Kind::Integer(1),
        "Processes of servers with a `command` at the same time; each session has one.",
    )
    .default("200")
    .open(),
    Key::new(
        "connections_per_address",
        Kind::Integer(1),
        "Of these, how many one address may have on which no request was accepted yet.",
    )
    .default("500")
    .open(),
    Key::new(
        "proxies",
        Kind::Texts,
        "Addresses and networks to which `connections_per_address` does not apply: the load balancers in front.",
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
        "How long a session may last, used or not; no limit when left out.",
    )
    .example(r#""24h""#)
    .open(),
]);

static SERVER: Shape = Shape::new(&[
    Key::new("url", Kind::Url, "The server's endpoint, or that of a load balancer in front of it.")
        .example(r#""https://mcp.example.com/mcp""#),
    Key::new("endpoints", Kind::Urls, "Instead of `url`: the endpoint of each replica; Bowline is the load balancer, and sessions are sticky.")
        .example(r#"["http://10.0.0.1:8000/mcp", "http://10.0.0.2:8000/mcp"]"#),
    Key::new("transport", Kind::Choice(&Transport::NAMES), "For `url` and `endpoints`: `streamable-http`; `sse`: the older HTTP+SSE (2024-11-05); `auto`: streamable HTTP or, if the server answers 400, 404 or 405 to that, HTTP+SSE.")
        .default(r#""auto""#)
        .open(),
    // An argument can be a secret, so it is not open.
    Key::new("command", Kind::Words, "Instead of `url`: the program that is started for each session and speaks MCP on stdin and stdout (stdio), and its arguments.")
        .example(r#"["npx", "-y", "@modelcontextprotocol/server-everything"]"#),
    Key::new("env", Kind::Secrets, "For `command`: environment variables of the process, besides a few that it inherits (`PATH`, `HOME`, locale, proxies and the like).")
        .example(r#"{ API_KEY = "..." }"#),
    Key::new("cwd", Kind::Text, "For `command`: the directory that it runs in; the gateway's own when left out.")
        .example(r#""/srv/files""#)
        .open(),
    Key::new("headers", Kind::Secrets, "Headers added to every request to the server.")
        .example(r#"{ Authorization = "Bearer ..." }"#),
    Key::new("forward_headers", Kind::Texts, "Names of the client's headers that are passed on to the server; no others are.")
        .default("[]")
        .example(r#"["x-tenant"]"#)
        .open(),
    Key::new("ca_file", Kind::Text, "For `https://`: certificates (PEM) of authorities to trust besides the system's, for this server and for its sign-in.")
        .example(r#""/etc/bowline/mcp-ca.pem""#)
        .open(),
    Key::new("connect_timeout", Kind::Text, "How long to wait for a connection.")
        .default(r#""10s""#)
        .open(),
    Key::new("call_timeout", Kind::Text, "How long a call may go without an answer or progress, recovery included; no limit when left out.")
        .example(r#""60s""#)
        .open(),
    Key::new("health", Kind::Table(&HEALTH), "How the server's endpoints are probed.")
        .example(r#"{ every = "5s", get = "/healthz" }"#),
    Key::new("keep_alive", Kind::Text, "How long an idle session is left alone at most before it is pinged, so that the server does not end it; `off`: it never is.")
        .default(r#""4m""#)
        .open(),
    Key::new("recovery_budget", Kind::Text, "How long a client may wait while a lost session is recovered; at least `1s`.")
        .default(r#""30s""#)
        .open(),
    Key::new("on_session_loss", Kind::Choice(&["recover", "tell"]), "`recover`: a lost session is recovered, and the client does not notice; `tell`: the client gets a 404.")
        .default(r#""recover""#)
        .open(),
    Key::new("replay", Kind::ChoiceOrTexts(&["safe", "never"]), "What is retried when it is unknown whether it ran: `safe`: what is safe to repeat by the protocol or by the tool's own hints; `never`: nothing; names of tools: what is safe, and these.")
        .default(r#""safe""#)
        .example(r#"["search"]"#)
        .open(),
    Key::new("drain_timeout", Kind::Text, "How long an endpoint that is no longer configured keeps its sessions.")
        .default(r#""10m""#)
        .open(),
    Key::new("session_lost", Kind::List(&SESSION_LOST), "Answers by which this server says that it lost a session, besides the protocol's 404."),
    Key::new("oauth", Kind::Table(&SERVER_OAUTH), "Bowline is the OAuth client of its callers at this server; may be empty.")
        .example("{}"),
    Key::new("prefix", Kind::Text, "What the names of its tools and prompts begin with in a union; the server's name when left out.")
        .example(r#""docs""#)
        .open(),
    Key::new("required", Kind::Flag, "Whether a union answers with an error while this server cannot be listed; otherwise it is left out, which the result says.")
        .default("false")
        .open(),
    Key::new("list_timeout", Kind::Text, "How long this server may delay a list of a union.")
        .default(r#""10s""#)
        .open(),
    Key::new("tools", Kind::Table(&TOOLS), "Which of its tools clients see and may call, on every path.")
        .example(r#"{ allow = ["get_*", "search"], deny = ["*_secret"] }"#),
])
.one_of(&["url", "endpoints", "command"]);

static HEALTH: Shape = Shape::new(&[
    Key::new(
        "every",
        Kind::Text,
        "How often an endpoint is probed, and its name resolved again.",
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
        "The HTTP status of the response; not 404, which always means a lost session.",
    )
    .example("400")
    .open(),
    Key::new(
        "code",
        Kind::Signed,
        "The JSON-RPC error code in the response; any when left out.",
    )
    .example("-32000")
    .open(),
    // Servers say it to everybody, so it is no secret.
    Key::new(
        "text",
        Kind::Text,
        "Text that the response's body contains; any when left out.",
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
    Key::new(
        "certificate_sha256",
        Kind::TextOrTexts,
        "Instead of a key or beside it: the SHA-256 fingerprint of the caller's TLS certificate, or several. The first one stays in front when a certificate is renewed: where there is no key, sessions and sign-ins belong to it.",
    )
    .example(r#""0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#)
    .open(),
    Key::new(
        "servers",
        Kind::Texts,
        "The servers that the caller may use, alone and in unions; all when left out.",
    )
    .example(r#"["files", "web"]"#)
    .open(),
])
.one_of(&["key", "key_sha256"])
.or(&["certificate_sha256"]);

/// The JSON file of an editor.
pub(in crate::config) static EDITOR: Shape = Shape::json(&[Key::new(
    "mcpServers",
    Kind::Named(&EDITOR_SERVER),
    "The MCP servers.",
)
.example(r#"{"files": {"url": "https://mcp.example.com/mcp"}}"#)])
.one_of(&["mcpServers"]);

static EDITOR_SERVER: Shape = Shape::json(&[
    Key::new(
        "type",
        Kind::Text,
        "The transport: `http` (streamable HTTP, or HTTP+SSE if the server does not know that), `streamable-http`, `sse` (HTTP+SSE) or `stdio`.",
    )
        .example(r#""http""#)
        .open(),
    Key::new("url", Kind::Url, "The server's endpoint.")
        .example(r#""https://mcp.example.com/mcp""#),
    Key::new(
        "command",
        Kind::Text,
        "Instead of `url`: the program that is started for each session (stdio).",
    )
    .example(r#""npx""#)
    .open(),
    Key::new("args", Kind::Words, "For `command`: its arguments.")
        .example(r#"["-y", "@modelcontextprotocol/server-everything"]"#),
    Key::new(
        "env",
        Kind::Secrets,
        "For `command`: its environment variables.",
    )
    .example(r#"{"API_KEY": "..."}"#),
    Key::new(
        "cwd",
        Kind::Text,
        "For `command`: the directory that it runs in.",
    )
    .example(r#""/srv/files""#)
    .open(),
    Key::new("headers", Kind::Secrets, "Headers added to every request.")
        .example(r#"{"Authorization": "Bearer ..."}"#),
    Key::new("disabled", Kind::Flag, "Whether to skip the server.").example("true"),
    Key::new(
        "oauth",
        Kind::Table(&EDITOR_OAUTH),
        "How callers sign in at this server (OAuth).",
    )
    .example("{}"),
])
.one_of(&["url", "command"]);

/// A key of this name in some table of the TOML file, if there is one.
pub(in crate::config) fn known(name: &str) -> Option<&'static Key> {
    let shapes = [
        &FILE,
        &STORE,
        &PEERS,
        &LIMITS,
        &OAUTH,
        &SERVER,
        &SERVER_OAUTH,
        &HEALTH,
        &SESSION_LOST,
        &NAMED_UNION,
        &TOOLS,
        &CALLER,
        // After it, because a caller's `key` is secret, and the name of this one's file is not.
        &TLS,
    ];
    shapes.iter().find_map(|shape| shape.key(name))
}
