use http::HeaderValue;

use super::*;

/// The guard of a listener here, where the configuration says this.
fn guard(listen: &str, config: &str) -> Guard {
    let config = Config::parse("test", config, &|_| None).unwrap();
    let listen = match listen.parse::<IpAddr>() {
        Ok(address) => ListenAddress::Tcp((address, 6270).into()),
        Err(_) => listen.parse().unwrap(),
    };
    Guard::new(&listen, false, &config)
}

const PUBLIC: &str = "oauth.public_url = \"https://gw.example.com/bowline\"";

fn asks(host: &str, origin: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
    if let Some(origin) = origin {
        headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
    }
    headers
}

fn passes(guard: &Guard, host: &str, origin: Option<&str>) -> bool {
    let headers = asks(host, origin);
    guard.check(&Uri::from_static("/mcp"), &headers).is_ok()
}

fn is_own(guard: &Guard, host: &str, origin: &str) -> bool {
    let headers = asks(host, Some(origin));
    guard
        .check_own(&Uri::from_static("/oauth/start"), &headers)
        .is_ok()
}

#[test]
fn a_loopback_listener_answers_to_loopback_names_only() {
    let guard = Guard::loopback();
    for good in [
        "localhost",
        "LocalHost:6270",
        "127.0.0.1:1",
        "127.0.0.2:1",
        "[::1]:6270",
        "[::1]",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert!(passes(&guard, good, None), "{good}");
    }
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "localhost:x@evil.example",
        "user@localhost",
        "[::1]evil.example",
        "",
        "[::2]",
        "0.0.0.0",
        "10.0.0.1",
    ] {
        assert!(!passes(&guard, bad, None), "{bad}");
    }
}

#[test]
fn other_listeners_answer_to_addresses_and_to_names_that_are_configured() {
    let plain = guard("0.0.0.0", "");
    let named = guard("10.0.0.1", "hosts = [\"gw.internal\"]");
    let public = guard("::", PUBLIC);
    for good in ["10.0.0.1:6270", "[2001:db8::1]", "localhost:1", "127.0.0.1"] {
        for guard in [&plain, &named, &public] {
            assert!(passes(guard, good, None), "{good}");
        }
    }
    assert!(passes(&named, "GW.internal:6270", None));
    assert!(passes(&public, "gw.example.com", None));
    for bad in [
        "evil.example",
        "",
        "gw.internal.evil.example",
        "gw",
        "x@10.0.0.1",
    ] {
        for guard in [&plain, &named, &public] {
            assert!(!passes(guard, bad, None), "{bad}");
        }
    }
    assert!(!passes(&plain, "gw.internal", None));
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let guard = Guard::loopback();
    for good in [
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:5",
    ] {
        assert!(passes(&guard, "localhost:1", Some(good)), "{good}");
    }
    for bad in [
        "http://evil.example",
        "null",
        "file://",
        "",
        "http://localhost.evil.example",
        "localhost",
        "ftp://localhost",
    ] {
        assert!(!passes(&guard, "localhost:1", Some(bad)), "{bad}");
    }
    let open = self::guard("0.0.0.0", "hosts = [\"mcp.example.com\"]");
    let own = Some("https://mcp.example.com");
    assert!(passes(&open, "mcp.example.com", own));
    assert!(passes(&open, "10.0.0.1:80", Some("http://10.0.0.1:80")));
    assert!(!passes(&open, "10.0.0.1:80", own));
    for bad in ["https://example.com", "http://localhost"] {
        assert!(!passes(&open, "mcp.example.com", Some(bad)), "{bad}");
    }
}

#[test]
fn behind_a_proxy_the_public_origin_is_its_own_whatever_the_host() {
    let guard = guard("127.0.0.1", PUBLIC);
    for host in ["127.0.0.1:6270", "gw.example.com", "gw.example.com:443"] {
        assert!(passes(&guard, host, None), "{host}");
        assert!(
            passes(&guard, host, Some("https://gw.example.com")),
            "{host}"
        );
        assert!(is_own(&guard, host, "https://gw.example.com"), "{host}");
        for bad in [
            "https://gw.example.com:8443",
            "http://gw.example.com",
            "http://GW.example.com:443",
            "https://gw.example.com.evil.example",
            "https://gw.example.com/bowline",
            // A page of the visitor's own machine.
            "http://localhost:3000",
        ] {
            assert!(!passes(&guard, host, Some(bad)), "{host} {bad}");
        }
        // What a proxy says in `Host` makes no page one of a sign-in.
        for scheme in ["http", "https"] {
            let same = format!("{scheme}://{host}");
            let is_public = same == "https://gw.example.com";
            assert_eq!(is_own(&guard, host, &same), is_public, "{same}");
        }
    }
    let named = self::guard("0.0.0.0", &format!("hosts = [\"app.example\"]\n{PUBLIC}"));
    for same in ["http://app.example", "https://app.example"] {
        assert!(passes(&named, "app.example", Some(same)), "{same}");
        assert!(!is_own(&named, "app.example", same), "{same}");
    }
    let public = "oauth.public_url = \"https://GW.example.com:443/\"";
    let guard = self::guard("127.0.0.1", public);
    assert!(passes(
        &guard,
        "127.0.0.1:6270",
        Some("https://gw.example.com")
    ));
    let local = self::guard("127.0.0.1", "oauth.public_url = \"http://[::1]:80\"");
    assert!(passes(
        &local,
        "127.0.0.1:6270",
        Some("http://localhost:3000")
    ));
    assert!(is_own(&local, "127.0.0.1:6270", "http://[::1]"));
}

#[test]
fn origins_that_are_configured_are_let_in_and_are_not_its_own() {
    let origins = "origins = [\"https://app.example\", \"vscode-webview://abc\"]";
    for listen in ["127.0.0.1", "0.0.0.0"] {
        let guard = guard(listen, origins);
        for good in ["https://app.example", "vscode-webview://abc"] {
            assert!(passes(&guard, "127.0.0.1:1", Some(good)), "{good}");
            assert!(!is_own(&guard, "127.0.0.1:1", good), "{good}");
        }
        for bad in [
            "http://app.example",
            "https://app.example:1",
            "https://x.app.example",
        ] {
            assert!(!passes(&guard, "127.0.0.1:1", Some(bad)), "{bad}");
        }
    }
}

#[test]
fn a_socket_has_no_name_and_pages_come_by_a_proxy_only() {
    let origins = "origins = [\"https://app.example\"]";
    let guard = guard("unix:/run/bowline.sock", &format!("{origins}\n{PUBLIC}"));
    for host in ["localhost", "docker", "_", "%2Frun%2Fbowline.sock", ""] {
        assert!(passes(&guard, host, None), "{host}");
        let pages = ["https://app.example", "https://gw.example.com"];
        for good in pages {
            assert!(passes(&guard, host, Some(good)), "{host} {good}");
        }
        for bad in [
            "http://localhost:3000",
            "http://evil.example",
            "http://docker",
            "http://",
            "null",
            "",
        ] {
            assert!(!passes(&guard, host, Some(bad)), "{host} {bad}");
        }
    }
    // A name that was rebound to the proxy's address.
    assert!(!passes(&guard, "evil.example", Some("http://evil.example")));
    let mut two = asks("localhost", None);
    two.append(header::HOST, HeaderValue::from_static("docker"));
    assert!(guard.check(&Uri::from_static("/mcp"), &two).is_err());
}

#[test]
fn a_page_of_another_port_of_this_machine_is_not_its_own() {
    let guard = Guard::loopback();
    assert!(is_own(&guard, "localhost:1", "http://localhost:1"));
    for bad in ["http://localhost:3000", "http://127.0.0.1:1", "null"] {
        assert!(!is_own(&guard, "localhost:1", bad), "{bad}");
    }
}

#[test]
fn an_absolute_target_is_the_host_and_two_hosts_are_none() {
    let guard = Guard::loopback();
    let headers = asks("localhost", None);
    let uri = Uri::from_static("http://evil.example/mcp");
    assert!(guard.check(&uri, &headers).is_err());
    for (name, second) in [
        (header::HOST, "127.0.0.1"),
        (header::ORIGIN, "http://localhost"),
    ] {
        let mut headers = asks("localhost", Some("http://localhost"));
        headers.append(name, HeaderValue::from_static(second));
        assert!(guard.check(&Uri::from_static("/mcp"), &headers).is_err());
    }
}

#[test]
fn with_tls_the_own_pages_come_by_https() {
    let config = Config::parse("test", "", &|_| None).unwrap();
    let listen = "0.0.0.0:6270".parse().unwrap();
    for (is_tls, by_http) in [(true, false), (false, true)] {
        let guard = Guard::new(&listen, is_tls, &config);
        assert!(is_own(&guard, "192.0.2.1:6270", "https://192.0.2.1:6270"));
        assert_eq!(
            is_own(&guard, "192.0.2.1:6270", "http://192.0.2.1:6270"),
            by_http
        );
    }
}
