//! The rules of `[oauth]` and of the `oauth` of a server.

use super::{good, parse, seconds, server, wrong};
use crate::config::{Client, ClientSecret, Config, Flags, Flow, OAuth, ServerOAuth, SignInHost};

/// A file with one server at which Bowline signs in as these lines say.
fn signing_in(lines: &str) -> String {
    server(&format!("[servers.a.oauth]\n{lines}"))
}

/// How Bowline signs in at the server of this text.
fn oauth(text: &str) -> ServerOAuth {
    good(text).servers["a"].oauth.clone().unwrap()
}

/// What is wrong with a server's `oauth` that has this line, which is the fourth of the file.
#[track_caller]
fn message(line: &str) -> String {
    let (at, _, message) = wrong(&signing_in(line));
    assert_eq!(at, 4, "{message}");
    message
}

/// What the one redirect URI of this server is.
fn redirect(oauth: &ServerOAuth) -> Option<&str> {
    oauth.redirect_uri.as_ref().map(|uri| uri.as_str())
}

#[test]
fn nobody_signs_in_unless_told_to() {
    assert_eq!(good(&server("")).servers["a"].oauth, None);
    assert_eq!(good("[oauth]\n").oauth, OAuth::default());
    let empty = oauth(&signing_in(""));
    assert_eq!(empty, ServerOAuth::default());
    assert_eq!(empty.flow, Flow::Managed);
    assert!(!empty.allow_private);
    let config = good(&server(""));
    assert_eq!(config.oauth.deadline, seconds(600));
    assert_eq!(config.oauth.hold, seconds(45));
    assert_eq!(config.oauth.meta_prefix, "bowline");
}

#[test]
fn a_full_file() {
    let config = good(
        r#"
        [oauth]
        public_url = "https://gw.example.com/bowline"
        redirect_uri = "https://app.example/cb"
        deadline = "5m"
        hold = "10s"
        meta_prefix = "docker-agent"
        [servers.a]
        url = "https://mcp.example.com/mcp"
        [servers.a.oauth]
        flow = "drive"
        client_id = "bowline"
        client_secret = "${TOKEN}"
        scopes = ["files:read", "https://example.com/all"]
        redirect_uri = "MyApp://Cb?x=%2f"
        issuer = "https://login.example.com/Tenant"
        endpoints_elsewhere = ["https://token.example.com", "https://[::1]:8443/"]
        allow_private = true
        [servers.b]
        url = "https://mcp.example.com/b"
        oauth = { flow = "managed", client_metadata_url = "https://Gw.example.com/client.json" }
        "#,
    );
    let all = &config.oauth;
    let public_url = all.public_url.as_ref().map(ToString::to_string);
    assert_eq!(
        public_url.as_deref(),
        Some("https://gw.example.com/bowline")
    );
    assert_eq!((all.deadline, all.hold), (seconds(300), seconds(10)));
    assert_eq!(all.meta_prefix, "docker-agent");
    let a = config.servers["a"].oauth.as_ref().unwrap();
    let secret = ClientSecret("s3cret-of-16-chars".to_owned());
    assert_eq!(secret.expose(), "s3cret-of-16-chars");
    let client = Client {
        id: "bowline".to_owned(),
        secret: Some(secret),
    };
    assert_eq!(a.client, Some(client));
    assert_eq!(a.scopes, ["files:read", "https://example.com/all"]);
    assert_eq!(redirect(a), Some("MyApp://Cb?x=%2f"), "byte for byte");
    assert!(a.allow_private);
    assert_eq!(
        a.issuer.as_deref(),
        Some("https://login.example.com/Tenant")
    );
    let elsewhere = ["https://token.example.com", "https://[::1]:8443/"];
    assert_eq!(a.endpoints_elsewhere, elsewhere);
    let b = config.servers["b"].oauth.as_ref().unwrap();
    assert_eq!((b.flow, redirect(b)), (Flow::Managed, None));
    let url = b.client_metadata_url.as_deref();
    assert_eq!(url, Some("https://Gw.example.com/client.json"));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn the_flow_follows_from_the_redirect_uri() {
    let own = "redirect_uri = \"https://own.example/cb\"";
    let all = "[oauth]\nredirect_uri = \"https://all.example/cb\"\n";
    for (before, lines, flow, uri) in [
        ("", "", Flow::Managed, None),
        ("", own, Flow::Drive, Some("https://own.example/cb")),
        (all, "", Flow::Drive, Some("https://all.example/cb")),
        (all, own, Flow::Drive, Some("https://own.example/cb")),
        (
            all,
            "flow = \"drive\"",
            Flow::Drive,
            Some("https://all.example/cb"),
        ),
        (all, "flow = \"managed\"", Flow::Managed, None),
        (all, "flow = \"client-driven\"", Flow::ClientDriven, None),
    ] {
        let oauth = oauth(&format!("{before}{}", signing_in(lines)));
        assert_eq!(
            (oauth.flow, redirect(&oauth)),
            (flow, uri),
            "{before}{lines}"
        );
    }
}

#[test]
fn the_flow_fits_the_redirect_uri() {
    assert_eq!(message("flow = \"magic\""), "unknown `flow`");
    assert_eq!(
        message("flow = \"drive\""),
        "the flow `drive` needs a `redirect_uri`, and there is none"
    );
    let uri = "redirect_uri = \"https://app.example/cb\"";
    for (flow, reason) in [
        (
            "managed",
            "the browser returns to Bowline's own page, under `public_url` in `[oauth]`",
        ),
        ("client-driven", "the client has its own"),
    ] {
        assert_eq!(
            message(&format!("{uri}\nflow = \"{flow}\"")),
            format!("`redirect_uri` means nothing with `{flow}`: {reason}")
        );
    }
    // A redirect URI that is wrong is one problem, not two.
    message("redirect_uri = \"/cb\"\nflow = \"drive\"");
}

#[test]
fn redirect_uris_are_absolute() {
    for fine in [
        "https://app.example/cb?x=y",
        "http://127.0.0.1:8080/cb",
        "http://[::1]/cb",
        "HTTP://localhost",
        "myapp://cb",
        "com.example.app:/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "vscode://extension/cb",
        "urn:ietf:wg:oauth:2.0:oob",
        "https://app.example/@me",
    ] {
        let oauth = oauth(&signing_in(&format!("redirect_uri = \"{fine}\"")));
        assert_eq!(redirect(&oauth), Some(fine));
    }
    let not_absolute = "the redirect URI is not absolute";
    let fragment = "the redirect URI has a fragment, which authorization servers refuse";
    let userinfo = "the redirect URI has a user name or password in it";
    let plain = "the redirect URI is http and not on this machine, so others could read the code";
    let host = "the redirect URI has no host, or a port that is not from 1 to 65535";
    let scheme = "the redirect URI leads neither to a page nor to an app";
    let malformed = "the redirect URI has a character that URIs cannot have, or is too long";
    for (bad, said) in [
        ("", not_absolute),
        ("/cb", not_absolute),
        ("app.example/cb", not_absolute),
        ("//app.example/cb", not_absolute),
        ("myapp:", not_absolute),
        ("1app://cb", not_absolute),
        ("https:/app.example", not_absolute),
        ("https://app.example/cb#", fragment),
        ("myapp://cb#x", fragment),
        ("https://ada@app.example/cb", userinfo),
        ("myapp://ada:x@cb", userinfo),
        ("http://app.example/cb", plain),
        ("http://127.0.0.1.example/cb", plain),
        ("http://10.0.0.1/cb", plain),
        ("https:///cb", host),
        ("https://app.example:0/cb", host),
        ("https://app.example/a b", malformed),
        ("javascript:alert(1)", scheme),
        ("JavaScript://app.example/%0aalert(1)", scheme),
        ("data:text/html,x", scheme),
        ("file:///etc/cb", scheme),
        ("myapp://é", malformed),
    ] {
        assert_eq!(message(&format!("redirect_uri = \"{bad}\"")), said, "{bad}");
        let (line, _, found) = wrong(&format!("[oauth]\nredirect_uri = \"{bad}\""));
        assert_eq!((line, found.as_str()), (2, said), "{bad}");
    }
}

#[test]
fn public_urls_are_of_pages() {
    for fine in [
        "https://gw.example.com",
        "https://h/bowline/",
        "http://localhost:1",
    ] {
        let config = good(&format!("oauth.public_url = \"{fine}\""));
        assert!(config.oauth.public_url.is_some());
    }
    for (bad, said) in [
        ("gw.example.com", "the URL has no scheme"),
        ("ws://h", "the URL's scheme is neither http nor https"),
        ("https://ada@h", "the URL has a user name or password in it"),
        (
            "https://h/?x",
            "`public_url` has a query, and Bowline appends the paths of its pages to it",
        ),
        (
            "https://h/#x",
            "`public_url` has a fragment, and Bowline appends the paths of its pages to it",
        ),
        (
            "http://gw.example.com",
            "`public_url` is http and not on this machine, so others could read the code",
        ),
    ] {
        assert_eq!(wrong(&format!("oauth.public_url = \"{bad}\"")).2, said);
    }
}

#[test]
fn clients_have_an_id() {
    let public = oauth(&signing_in("client_id = \"x\""));
    assert_eq!(public.client.unwrap().secret, None);
    assert_eq!(
        message("client_secret = \"x\""),
        "there is a `client_secret` and no `client_id`"
    );
    assert_eq!(message("client_id = \"${EMPTY}\""), "`client_id` is empty");
    assert_eq!(
        message("client_secret = \"x\\n\"\nclient_id = \"x\"\nissuer = \"https://h\""),
        "`client_secret` has a character that it cannot have"
    );
    for (bad, said) in [
        ("http://h/x", "`client_metadata_url` is not https"),
        ("ftp://h/x", "`client_metadata_url` is not https"),
        ("https://h", "`client_metadata_url` has no path"),
        ("https://h/", "`client_metadata_url` has no path"),
        (
            "https://h/a/../x",
            "`client_metadata_url` has `.` or `..` in its path, which authorization servers refuse",
        ),
        ("h/x", "the URL has no scheme"),
    ] {
        assert_eq!(message(&format!("client_metadata_url = \"{bad}\"")), said);
    }
    assert_eq!(
        message("client_metadata_url = \"https://h/x\"\nclient_id = \"x\""),
        "there are both `client_id` and `client_metadata_url`, and each is the client's id"
    );
}

#[test]
fn a_secret_is_for_one_authorization_server() {
    assert_eq!(
        message("client_secret = \"x\"\nclient_id = \"x\""),
        "there is a `client_secret` and no `issuer`, so whichever authorization server the server \
         names would get it"
    );
    // Nobody else hears of a public client what could not be heard from it.
    good(&signing_in("client_id = \"x\""));
    good(&signing_in("issuer = \"http://127.0.0.1:9/tenant/\""));
    for (bad, said) in [
        ("login.example", "the URL has no scheme"),
        ("https://h/x?y", "the `issuer` has a query"),
        ("https://u@h", "the URL has a user name or password"),
        ("${EMPTY}", "the URL has no scheme"),
    ] {
        let told = message(&format!("issuer = \"{bad}\""));
        assert!(told.starts_with(said), "{told}");
    }
}

#[test]
fn endpoints_are_elsewhere_at_origins() {
    for (bad, said) in [
        ("token.example", "the URL has no scheme"),
        ("https://h/token", "an origin has no path and no query"),
        ("https://h?x", "an origin has no path and no query"),
        ("https://o", "the origin is given twice"),
        ("*", "the URL has no scheme"),
    ] {
        let line = format!("endpoints_elsewhere = [\"https://o\", \"{bad}\"]");
        assert_eq!(message(&line), said);
    }
}

#[test]
fn a_grant_belongs_to_a_url() {
    let two = |of_b: &str| {
        format!(
            "[servers.a]\nurl = \"https://h/mcp\"\noauth = {{}}\n\
             [servers.b]\nurl = \"https://h/mcp\"\n{of_b}"
        )
    };
    good(&two("oauth = {}"));
    // How people are asked, and for what, may differ.
    good(&two(
        "oauth = { redirect_uri = \"https://host/back\", scopes = [\"a\"] }",
    ));
    // Nobody signs in there.
    good(&two(""));
    for another in [
        "oauth = { allow_private = true }",
        "headers = { x = \"y\" }\noauth = {}",
    ] {
        let (line, _, message) = wrong(&two(another));
        assert!((6..=7).contains(&line), "{line}");
        assert_eq!(
            message,
            "an earlier server has the same URL and another client, issuer, `headers` or the like, \
             and tokens belong to the URL"
        );
    }
}

#[test]
fn scopes_stand_by_themselves() {
    for (bad, said) in [
        ("a b", "a scope has a space in it"),
        ("${EMPTY}", "a scope is empty"),
        ("é", "a scope has a character that scopes cannot have"),
        ("a\\\\b", "a scope has a character that scopes cannot have"),
        ("x", "the scope is given twice"),
    ] {
        assert_eq!(message(&format!("scopes = [\"x\", \"{bad}\"]")), said);
    }
    assert_eq!(
        message("scopes = \"a\""),
        "`scopes` must be an array of strings, not a string"
    );
    assert!(oauth(&signing_in("scopes = []")).scopes.is_empty());
}

#[test]
fn prefixes_are_those_of_the_protocol() {
    good("oauth.meta_prefix = \"com.example.my-app2\"");
    for bad in ["", "bowline/", "-x", "x-", "2x", "a..b", "é"] {
        let (.., message) = wrong(&format!("oauth.meta_prefix = \"{bad}\""));
        assert_eq!(
            message, "`meta_prefix` is not a prefix that keys in `_meta` can have",
            "{bad}"
        );
    }
}

#[test]
fn tokens_go_to_one_origin_unless_told_otherwise() {
    let several = |urls: &str, lines: &str| {
        format!("[servers.a]\nendpoints = [{urls}]\n[servers.a.oauth]\n{lines}\n")
    };
    for one in [
        r#""https://a.example/mcp", "https://A.example:443/other""#,
        r#""http://127.0.0.1:80/mcp", "http://127.0.0.1/b""#,
    ] {
        good(&several(one, ""));
    }
    for two in [
        r#""https://a.example/mcp", "https://b.example/mcp""#,
        r#""https://a.example/mcp", "http://a.example/mcp""#,
        r#""https://a.example/mcp", "https://a.example:8443/mcp""#,
    ] {
        let (line, _, message) = wrong(&several(two, ""));
        assert_eq!(
            (line, message.as_str()),
            (
                2,
                "the server has `oauth` and endpoints of several origins, and each of them would get the tokens"
            )
        );
        let allowed = good(&several(two, "several_origins = true"));
        assert!(allowed.servers["a"].oauth.as_ref().unwrap().several_origins);
    }
}

#[test]
fn a_request_has_one_token() {
    let text = server("headers = { x-a = \"b\", authorization = \"Bearer x\" }\noauth = {}");
    let (line, column, message) = wrong(&text);
    assert_eq!((line, column), (3, 24));
    assert_eq!(
        message,
        "the server has both an `Authorization` header and `oauth`, and a request can have only one \
         token"
    );
}

const OPEN: &str = "listen = \"0.0.0.0:6270\"\n";
const CALLERS: &str = "[callers.ada]\nkey = \"${TOKEN}\"\n";
const PAGES: &str = "[oauth]\npublic_url = \"https://gw.example.com\"\n";
const DRIVE: &str = "redirect_uri = \"https://app.example/cb\"\n";

/// The places and messages of a file with these parts.
fn all_wrong(parts: &[&str]) -> Vec<(usize, usize)> {
    let errors = parse(&parts.concat()).unwrap_err();
    let places = errors.iter().map(|one| (one.line(), one.column()));
    places.collect()
}

#[test]
fn others_must_say_who_they_are() {
    let (managed, drive) = (signing_in(""), signing_in(DRIVE));
    good(&[OPEN, PAGES, &managed, CALLERS].concat());
    good(&[OPEN, &drive, CALLERS].concat());
    good(&[OPEN, &server("")].concat());
    good(&["listen = \"[::1]:1\"\n", &managed].concat());
    let (line, _, said) = wrong(&[OPEN, PAGES, &managed].concat());
    assert_eq!(line, 6, "where the server's `oauth` is");
    assert!(said.contains("without a key"), "{said}");
    let (line, _, said) = wrong(&[OPEN, &managed, CALLERS].concat());
    assert_eq!(line, 4);
    assert!(said.contains("could not return"), "{said}");
    let both = all_wrong(&[OPEN, &managed]);
    assert_eq!(both, [(4, 12), (4, 12)]);
    // What is there and wrong is one problem.
    assert_eq!(
        all_wrong(&[OPEN, &drive, "[callers.ada]\nkey = \"x\"\n"]),
        [(8, 7)]
    );
    let wrong_url = "oauth.public_url = \"x\"\n";
    assert_eq!(all_wrong(&[wrong_url, OPEN, &managed, CALLERS]).len(), 1);
}

#[test]
fn a_host_and_a_flow_for_all_servers() {
    let of = |oauth: &str, server: &str| good(&["[oauth]\n", oauth, &signing_in(server)].concat());
    let config = of("host = \"docker-agent\"\n", "");
    assert_eq!(config.oauth.host, SignInHost::DockerAgent);
    assert_eq!(config.oauth.meta_prefix, "docker-agent");
    let own = of("host = \"docker-agent\"\nmeta_prefix = \"cagent\"\n", "");
    assert_eq!(own.oauth.meta_prefix, "cagent");
    let flow = |config: Config| config.servers["a"].oauth.as_ref().unwrap().flow;
    let client_driven = "flow = \"client-driven\"\n";
    assert_eq!(flow(of(client_driven, "")), Flow::ClientDriven);
    assert_eq!(flow(of(client_driven, "flow = \"managed\"")), Flow::Managed);
    assert_eq!(flow(of(client_driven, DRIVE)), Flow::Drive);
    for (oauth, why) in [
        ("host = \"x\"", "unknown `host`"),
        ("flow = \"x\"", "unknown `flow`"),
        ("flow = \"drive\"", "needs a `redirect_uri`"),
        (
            "redirect_uri = \"https://x/\"\nflow = \"managed\"",
            "means nothing with `managed`",
        ),
    ] {
        let (_, _, said) = wrong(&["[oauth]\n", oauth, "\n", &server("")].concat());
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn flags_stand_in_for_the_file() {
    let with = |text: &str, flags: &Flags| Config::parse_with("x", text, &super::variable, flags);
    let flags = Flags {
        redirect_uri: Some("myapp://cb".parse().unwrap()),
        ..Flags::default()
    };
    let text = ["[oauth]\nredirect_uri = \"https://x/\"\n", &signing_in("")].concat();
    let config = with(&text, &flags).unwrap();
    let oauth = config.servers["a"].oauth.as_ref().unwrap();
    assert_eq!(
        (oauth.flow, redirect(oauth)),
        (Flow::Drive, Some("myapp://cb"))
    );
    assert_eq!(config.oauth.redirect_uri, flags.redirect_uri);
    with(&signing_in("flow = \"drive\""), &flags).unwrap();

    let flags = Flags {
        flow: Some(Flow::ClientDriven),
        host: Some(SignInHost::DockerAgent),
        meta_prefix: Some("x".to_owned()),
        ..Flags::default()
    };
    let config = with(&signing_in(""), &flags).unwrap();
    let oauth = config.servers["a"].oauth.as_ref().unwrap();
    assert_eq!(oauth.flow, Flow::ClientDriven);
    assert_eq!(config.oauth.host, SignInHost::DockerAgent);
    assert_eq!(config.oauth.meta_prefix, "x");
    let config = with(&signing_in(DRIVE), &flags).unwrap();
    assert_eq!(
        config.servers["a"].oauth.as_ref().unwrap().flow,
        Flow::Drive
    );
    assert_eq!(Config::of_flags(&flags).oauth, config.oauth);
    assert_eq!(Config::of_flags(&Flags::default()), Config::default());

    let listen = |address: &str| Flags {
        listen: Some(address.parse().unwrap()),
        ..Flags::default()
    };
    let open = [OPEN, &signing_in("")].concat();
    with(&open, &listen("127.0.0.1:1")).unwrap();
    let errors = with(&signing_in(DRIVE), &listen("10.0.0.1:1")).unwrap_err();
    assert_eq!(errors.iter().next().unwrap().line(), 3);
}

#[test]
fn how_it_looks() {
    let text = r#"listen = "0.0.0.0:6270"
[servers.files]
url = "https://mcp.example.com/mcp"
headers = { Authorization = "Bearer s3cret" }
[servers.files.oauth]
redirect_url = "https://app.example/cb"
client_secret = "s3cret"
scopes = ["files:read files:write"]
"#;
    assert_eq!(
        parse(text).unwrap_err().to_string(),
        r#"
error: the server has both an `Authorization` header and `oauth`, and a request can have only one token
 --> bowline.toml:4:13
  |
4 | headers = { Authorization = "*************" }
  |             ^^^^^^^^^^^^^
  |
  = help: remove the header if callers sign in, or `oauth` if all of them share this token

error: others can reach the gateway without a key, so anybody could use the tokens of others
 --> bowline.toml:5:16
  |
5 | [servers.files.oauth]
  |                ^^^^^
  |
  = help: give everybody a key of their own in `[callers.NAME]`, or listen on 127.0.0.1

error: the browser could not return from a sign-in: the gateway's public URL is not known
 --> bowline.toml:5:16
  |
5 | [servers.files.oauth]
  |                ^^^^^
  |
  = help: add `public_url = "https://gw.example.com"` to `[oauth]`, or listen on 127.0.0.1

error: unknown key `redirect_url` in `servers.files.oauth`
 --> bowline.toml:6:1
  |
6 | redirect_url = "**********************"
  | ^^^^^^^^^^^^
  |
  = help: did you mean `redirect_uri`?

error: there is a `client_secret` and no `client_id`
 --> bowline.toml:7:17
  |
7 | client_secret = "******"
  |                 ^^^^^^^^
  |
  = help: add the `client_id` that it belongs to, or take it out

error: a scope has a space in it
 --> bowline.toml:8:11
  |
8 | scopes = ["files:read files:write"]
  |           ^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write each scope by itself, such as `["files:read", "files:write"]`
"#
        .trim()
    );
}
