//! The configuration as written: what each key of the file holds, values with their place.
//!
//! The first of two stages. It knows which keys there are ([`keys`] declares them)
//! and nothing of what the values mean; that is for [`check`](super::check).

mod union;

use std::ops::Range;

use toml::Spanned;

use super::keys;
use super::read::{OneOrMany, Secret, Table, Texts};
use super::report::Findings;
use super::tree::Node;

pub(super) use self::union::{Tools, Union};

/// A string of the file.
type Text = Option<Spanned<String>>;

/// The file; what is missing or of the wrong type is `None`.
#[derive(Default)]
pub(super) struct File {
    pub(super) listen: Text,
    pub(super) admin: Text,
    pub(super) stop_timeout: Text,
    pub(super) hosts: Option<Texts>,
    pub(super) origins: Option<Texts>,
    pub(super) tls: Option<Tls>,
    pub(super) store: Store,
    pub(super) peers: Option<Peers>,
    pub(super) limits: Limits,
    pub(super) oauth: OAuth,
    pub(super) servers: Vec<Server>,
    pub(super) union: Union,
    pub(super) unions: Vec<(Spanned<String>, Union)>,
    pub(super) callers: Vec<Caller>,
}

/// The table `tls`.
pub(super) struct Tls {
    /// Where the table begins.
    pub(super) place: Range<usize>,
    pub(super) cert: Text,
    pub(super) key: Text,
}

/// The table `store`; there is no `Debug`, because the password is secret.
#[derive(Default)]
pub(super) struct Store {
    pub(super) kind: Text,
    pub(super) path: Text,
    pub(super) url: Text,
    pub(super) user: Text,
    pub(super) password: Text,
    pub(super) password_file: Text,
    pub(super) ca_file: Text,
    pub(super) prefix: Text,
    pub(super) timeout: Text,
    pub(super) cache: Option<Spanned<i128>>,
    pub(super) grace: Text,
    pub(super) on_unreachable_start: Text,
    pub(super) seal_keys_file: Text,
}

/// The table `peers`; there is no `Debug`, because the secret is one.
pub(super) struct Peers {
    /// Where the table begins.
    pub(super) place: Range<usize>,
    pub(super) listen: Text,
    pub(super) advertise: Text,
    pub(super) secret: Text,
    pub(super) secret_file: Text,
}

/// The table `limits`.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) sessions: Option<Spanned<i128>>,
    pub(super) streams: Option<Spanned<i128>>,
    pub(super) connections: Option<Spanned<i128>>,
    pub(super) children: Option<Spanned<i128>>,
    pub(super) connections_per_address: Option<Spanned<i128>>,
    pub(super) proxies: Option<Texts>,
    pub(super) body_bytes: Option<Spanned<i128>>,
    pub(super) session_idle: Text,
    pub(super) session_max_age: Text,
}

/// The table `oauth`.
#[derive(Default)]
pub(super) struct OAuth {
    pub(super) public_url: Text,
    pub(super) redirect_uri: Text,
    pub(super) flow: Text,
    pub(super) host: Text,
    pub(super) deadline: Text,
    pub(super) hold: Text,
    pub(super) meta_prefix: Text,
}

/// A table in `servers`; there is no `Debug`, because headers are secret.
pub(super) struct Server {
    pub(super) name: Spanned<String>,
    pub(super) url: Text,
    pub(super) endpoints: Option<Texts>,
    pub(super) transport: Text,
    pub(super) command: Option<Command>,
    /// Keys beside it that mean nothing for a server that is reached like that, and their places.
    pub(super) misplaced: Vec<(&'static str, Range<usize>)>,
    pub(super) headers: Vec<Secret>,
    pub(super) forward_headers: Option<Texts>,
    pub(super) ca_file: Text,
    pub(super) connect_timeout: Text,
    pub(super) call_timeout: Text,
    pub(super) health: Health,
    pub(super) keep_alive: Text,
    pub(super) recovery: Recovery,
    pub(super) oauth: Option<ServerOAuth>,
    pub(super) prefix: Text,
    pub(super) required: Option<bool>,
    pub(super) list_timeout: Text,
    pub(super) tools: Option<Tools>,
}

/// How a server's process is started; there is no `Debug`, because its environment is secret.
pub(super) struct Command {
    /// Where the program is named.
    pub(super) place: Range<usize>,
    pub(super) words: Vec<Spanned<String>>,
    pub(super) env: Vec<Secret>,
    pub(super) cwd: Text,
}

/// The table `health` of a server.
#[derive(Default)]
pub(super) struct Health {
    pub(super) every: Text,
    pub(super) get: Text,
}

/// What a server's table says about lost sessions.
#[derive(Default)]
pub(super) struct Recovery {
    pub(super) budget: Text,
    pub(super) on_loss: Text,
    pub(super) replay: Option<OneOrMany>,
    pub(super) drain_timeout: Text,
    pub(super) fingerprints: Vec<Fingerprint>,
}

/// A table in `session_lost` of a server.
pub(super) struct Fingerprint {
    pub(super) status: Option<Spanned<i128>>,
    pub(super) code: Option<Spanned<i128>>,
    pub(super) text: Text,
    /// Whether `code` or `text` is there, usable or not.
    pub(super) narrowed: bool,
}

/// The table `oauth` of a server; there is no `Debug`, because the client's secret is one.
pub(super) struct ServerOAuth {
    /// Where the table begins.
    pub(super) place: Range<usize>,
    pub(super) flow: Text,
    pub(super) client_id: Text,
    pub(super) client_secret: Text,
    pub(super) scopes: Option<Texts>,
    pub(super) redirect_uri: Text,
    pub(super) client_metadata_url: Text,
    pub(super) issuer: Text,
    pub(super) endpoints_elsewhere: Option<Texts>,
    pub(super) allow_private: Option<bool>,
    pub(super) several_origins: Option<bool>,
    pub(super) unlisted_pkce: Option<bool>,
}

/// A table in `callers`; there is no `Debug`, because the key is secret.
pub(super) struct Caller {
    pub(super) name: Spanned<String>,
    pub(super) key: Text,
    pub(super) key_sha256: Text,
    pub(super) certificate_sha256: Option<OneOrMany>,
    pub(super) servers: Option<Texts>,
}

/// Reads the values of a TOML file.
pub(super) fn read(root: &Node, text: &str, findings: &mut Findings) -> File {
    let mut top = Table::top(root, &keys::FILE, text, findings);
    let mut file = File {
        listen: top.text("listen"),
        admin: top.text("admin"),
        stop_timeout: top.text("stop_timeout"),
        hosts: top.texts("hosts"),
        origins: top.texts("origins"),
        ..File::default()
    };
    file.tls = read_tls(&mut top);
    if let Some(mut store) = top.table("store") {
        file.store = Store {
            kind: store.text("kind"),
            path: store.text("path"),
            url: store.text("url"),
            user: store.text("user"),
            password: store.text("password"),
            password_file: store.text("password_file"),
            ca_file: store.text("ca_file"),
            prefix: store.text("prefix"),
            timeout: store.text("timeout"),
            cache: store.integer("cache"),
            grace: store.text("grace"),
            on_unreachable_start: store.text("on_unreachable_start"),
            seal_keys_file: store.text("seal_keys_file"),
        };
        store.finish();
    }
    file.peers = read_peers(&mut top);
    if let Some(mut limits) = top.table("limits") {
        file.limits = Limits {
            sessions: limits.integer("sessions"),
            streams: limits.integer("streams"),
            connections: limits.integer("connections"),
            children: limits.integer("children"),
            connections_per_address: limits.integer("connections_per_address"),
            proxies: limits.texts("proxies"),
            body_bytes: limits.integer("body_bytes"),
            session_idle: limits.text("session_idle"),
            session_max_age: limits.text("session_max_age"),
        };
        limits.finish();
    }
    if let Some(mut oauth) = top.table("oauth") {
        file.oauth = OAuth {
            public_url: oauth.text("public_url"),
            redirect_uri: oauth.text("redirect_uri"),
            deadline: oauth.text("deadline"),
            hold: oauth.text("hold"),
            flow: oauth.text("flow"),
            host: oauth.text("host"),
            meta_prefix: oauth.text("meta_prefix"),
        };
        oauth.finish();
    }
    file.servers = top.named("servers", read_server);
    file.union = union::read_union(&mut top);
    file.unions = top.named("unions", union::read_named_union);
    file.callers = top.named("callers", read_caller);
    top.finish();
    file
}

fn read_tls(top: &mut Table<'_, '_>) -> Option<Tls> {
    let place = top.find("tls").unwrap_or_default();
    let mut table = top.table("tls")?;
    let tls = Tls {
        place,
        cert: table.text("cert"),
        key: table.text("key"),
    };
    table.finish();
    Some(tls)
}

fn read_peers(top: &mut Table<'_, '_>) -> Option<Peers> {
    let place = top.find("peers").unwrap_or_default();
    let mut table = top.table("peers")?;
    table.exactly_one(place.clone());
    let peers = Peers {
        place,
        listen: table.text("listen"),
        advertise: table.text("advertise"),
        secret: table.text("secret"),
        secret_file: table.text("secret_file"),
    };
    table.finish();
    Some(peers)
}

/// The keys of a server that is reached by HTTP, and of one that is a process.
const HTTP_KEYS: [&str; 9] = [
    "transport",
    "headers",
    "forward_headers",
    "ca_file",
    "connect_timeout",
    "health",
    "keep_alive",
    "session_lost",
    "oauth",
];
const PROCESS_KEYS: [&str; 2] = ["env", "cwd"];

/// The keys that are there and mean nothing beside the way in which the server is reached.
pub(super) fn misplaced(table: &Table<'_, '_>) -> Vec<(&'static str, Range<usize>)> {
    let keys = match table.find("command") {
        Some(_) => &HTTP_KEYS[..],
        None => &PROCESS_KEYS,
    };
    let found = keys.iter().filter_map(|key| Some((*key, table.find(key)?)));
    found.collect()
}

fn read_server(name: Spanned<String>, mut table: Table<'_, '_>) -> Option<Server> {
    table.exactly_one(name.span());
    let mut server = Server {
        name,
        misplaced: misplaced(&table),
        url: table.text("url"),
        endpoints: table.texts("endpoints"),
        transport: table.text("transport"),
        command: read_command(&mut table),
        headers: table.secrets("headers"),
        forward_headers: table.texts("forward_headers"),
        ca_file: table.text("ca_file"),
        connect_timeout: table.text("connect_timeout"),
        call_timeout: table.text("call_timeout"),
        health: Health::default(),
        keep_alive: table.text("keep_alive"),
        recovery: Recovery {
            budget: table.text("recovery_budget"),
            on_loss: table.text("on_session_loss"),
            replay: table.text_or_texts("replay"),
            drain_timeout: table.text("drain_timeout"),
            fingerprints: table.list("session_lost", read_fingerprint),
        },
        oauth: read_oauth(&mut table),
        prefix: table.text("prefix"),
        required: table.flag("required"),
        list_timeout: table.text("list_timeout"),
        tools: union::read_tools(&mut table),
    };
    if let Some(mut health) = table.table("health") {
        server.health = Health {
            every: health.text("every"),
            get: health.text("get"),
        };
        health.finish();
    }
    table.finish();
    Some(server)
}

fn read_command(table: &mut Table<'_, '_>) -> Option<Command> {
    let words = table.texts("command");
    let (env, cwd) = (table.secrets("env"), table.text("cwd"));
    let words = words?;
    Some(Command {
        place: words.span(),
        words: words.into_inner(),
        env,
        cwd,
    })
}

/// Reads the table `oauth` of a server, which means something even when it is empty.
pub(super) fn read_oauth(server: &mut Table<'_, '_>) -> Option<ServerOAuth> {
    let place = server.find("oauth").unwrap_or_default();
    let mut table = server.table("oauth")?;
    let oauth = ServerOAuth {
        place,
        flow: table.text("flow"),
        client_id: table.text("client_id"),
        client_secret: table.text("client_secret"),
        scopes: table.texts("scopes"),
        redirect_uri: table.text("redirect_uri"),
        client_metadata_url: table.text("client_metadata_url"),
        issuer: table.text("issuer"),
        endpoints_elsewhere: table.texts("endpoints_elsewhere"),
        allow_private: table.flag("allow_private"),
        several_origins: table.flag("several_origins"),
        unlisted_pkce: table.flag("unlisted_pkce"),
    };
    table.finish();
    Some(oauth)
}

fn read_fingerprint(place: Range<usize>, mut table: Table<'_, '_>) -> Fingerprint {
    table.exactly_one(place);
    let fingerprint = Fingerprint {
        narrowed: table.find("code").or(table.find("text")).is_some(),
        status: table.integer("status"),
        code: table.integer("code"),
        text: table.text("text"),
    };
    table.finish();
    fingerprint
}

fn read_caller(name: Spanned<String>, mut table: Table<'_, '_>) -> Option<Caller> {
    table.exactly_one(name.span());
    let caller = Caller {
        name,
        key: table.text("key"),
        key_sha256: table.text("key_sha256"),
        certificate_sha256: table.text_or_texts("certificate_sha256"),
        servers: table.texts("servers"),
    };
    table.finish();
    Some(caller)
}
