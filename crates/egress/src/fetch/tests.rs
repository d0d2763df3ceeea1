//! Fetch against malicious servers. All of them, and the server on whose behalf they are contacted, are
//! on the loopback interface, so that they can be reached.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_testbed::scripted::{Asked, Scripted};
use http::header::AUTHORIZATION;
use tokio::net::TcpListener;

use super::*;

/// Fetches on behalf of a server at this URL.
fn on_behalf_of(server: &str) -> Fetch {
    Fetch::new(Reach::new(&server.parse().unwrap(), false), Tls::platform())
}

fn get(url: impl AsRef<str>) -> Request<Vec<u8>> {
    Request::get(url.as_ref()).body(Vec::new()).unwrap()
}

/// Sends a request to `url`, and lets the test handle it at the server.
async fn meet(
    fetch: &Fetch,
    request: Request<Vec<u8>>,
    server: &mut Scripted,
    answer: impl FnOnce(Asked),
) -> Result<Response<Vec<u8>>, FetchError> {
    let answered = async { answer(server.next().await) };
    tokio::join!(fetch.send(request, Redirects::Follow), answered).0
}

#[tokio::test]
async fn an_answer_comes_whole() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let request = Request::post(server.url())
        .header("cookie", "a=b")
        .header("content-type", "application/json")
        .body(b"{}".to_vec())
        .unwrap();
    let answer = meet(&fetch, request, &mut server, |asked| {
        assert_eq!(asked.body, "{}");
        assert_eq!(asked.header("content-type"), "application/json");
        assert_eq!(asked.header("accept-encoding"), "identity");
        assert!(asked.header("user-agent").starts_with("bowline/"));
        assert!(!asked.headers.contains_key("cookie"));
        asked.reply(418, &[("set-cookie", "c=d"), ("x", "y")], "short and stout");
    });
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 418);
    assert_eq!(answer.headers()["x"], "y");
    assert_eq!(answer.body(), b"short and stout");
    let again = meet(&fetch, get(server.url()), &mut server, |asked| {
        assert!(!asked.headers.contains_key("cookie"));
        assert!(!asked.headers.contains_key("content-length"));
        asked.reply(200, &[], "");
    });
    again.await.unwrap();
}

#[tokio::test]
async fn only_urls_of_the_web() {
    let fetch = on_behalf_of("http://127.0.0.1/");
    for url in [
        "ftp://127.0.0.1/",
        "file://localhost/etc/passwd",
        "unix://x/",
        "/path",
    ] {
        let failed = fetch.send(get(url), Redirects::Follow).await;
        assert!(
            matches!(failed, Err(FetchError::NotWeb)),
            "{url}: {failed:?}"
        );
    }
    for url in [
        "http://user@127.0.0.1/",
        "http://127.0.0.1@evil.example/",
        "https://a:b@127.0.0.1/",
    ] {
        let failed = fetch.send(get(url), Redirects::Follow).await;
        assert!(
            matches!(failed, Err(FetchError::Userinfo)),
            "{url}: {failed:?}"
        );
    }
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_all() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let request = Request::post(server.url())
        .header(AUTHORIZATION, "Basic abc")
        .body(b"a=b".to_vec())
        .unwrap();
    let following = async {
        let asked = server.next().await;
        asked.reply(307, &[("location", "other/./x?y=z#part")], "");
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), &*asked.target),
            ("POST", "/other/x?y=z")
        );
        assert_eq!(asked.header("authorization"), "Basic abc");
        assert_eq!(asked.body, "a=b");
        asked.reply(200, &[], "there");
    };
    let (answer, ()) = tokio::join!(fetch.send(request, Redirects::Follow), following);
    assert_eq!(answer.unwrap().body(), b"there");
}

#[tokio::test]
async fn a_redirect_off_the_origin_takes_no_credentials_along() {
    let (mut server, mut elsewhere) = (Scripted::start().await, Scripted::start().await);
    let configured = HeaderMap::from_iter([(
        HeaderName::from_static("x-api-key"),
        HeaderValue::from_static("key"),
    )]);
    let fetch = on_behalf_of(server.url()).with_headers(configured);
    let request = Request::get(server.url())
        .header(AUTHORIZATION, "Basic abc")
        .header("x-other", "1")
        .header(ACCEPT, "application/json")
        .body(Vec::new())
        .unwrap();
    let there = elsewhere.url().to_owned();
    let following = async {
        let asked = server.next().await;
        assert_eq!(asked.header("authorization"), "Basic abc");
        assert_eq!(asked.header("x-api-key"), "key");
        asked.reply(302, &[("location", &there)], "");
        let asked = elsewhere.next().await;
        for name in ["authorization", "x-api-key", "x-other"] {
            assert!(!asked.headers.contains_key(name), "{name}");
        }
        assert_eq!(asked.header("accept"), "application/json");
        assert_eq!(format!("http://{}/mcp", asked.header("host")), there);
        asked.reply(200, &[], "");
    };
    tokio::join!(fetch.send(request, Redirects::Follow), following)
        .0
        .unwrap();
}

#[tokio::test]
async fn what_is_configured_goes_to_the_server_alone() {
    let (mut server, mut elsewhere) = (Scripted::start().await, Scripted::start().await);
    let mut configured = HeaderMap::new();
    for (name, value) in [
        ("x-api-key", "key"),
        ("host", "evil"),
        ("cookie", "a=b"),
        ("accept", "x"),
    ] {
        configured.insert(name, HeaderValue::from_static(value));
    }
    let fetch = on_behalf_of(server.url()).with_headers(configured);
    let request = Request::get(server.url())
        .header(ACCEPT, "application/json")
        .body(Vec::new())
        .unwrap();
    let own = meet(&fetch, request, &mut server, |asked| {
        assert_eq!(asked.header("x-api-key"), "key");
        assert!(asked.header("host").starts_with("127.0.0.1:"));
        assert!(!asked.headers.contains_key("cookie"));
        let accepts: Vec<_> = asked.headers.get_all("accept").iter().collect();
        assert_eq!(accepts, ["application/json"]);
        asked.reply(200, &[], "");
    });
    own.await.unwrap();
    let other = meet(&fetch, get(elsewhere.url()), &mut elsewhere, |asked| {
        assert!(!asked.headers.contains_key("x-api-key"));
        asked.reply(200, &[], "");
    });
    other.await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_judged_like_any_url() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    for (location, expected) in [
        (
            "http://169.254.169.254/latest/meta-data/",
            "169.254.169.254",
        ),
        ("http://[::ffff:169.254.169.254]/", "::ffff:169.254.169.254"),
        ("http://0xa9fea9fe/", "169.254.169.254"),
        ("http://2852039166/", "169.254.169.254"),
        ("//10.0.0.1/", "10.0.0.1"),
    ] {
        let url = server.url().to_owned();
        let failed = meet(&fetch, get(url), &mut server, |asked| {
            asked.reply(302, &[("location", location)], "");
        });
        match failed.await {
            Err(FetchError::OutOfReach(_, address)) => assert_eq!(address.to_string(), expected),
            other => panic!("{location}: {other:?}"),
        }
    }
    for location in [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://u@127.0.0.1/",
        "http://",
    ] {
        let url = server.url().to_owned();
        let failed = meet(&fetch, get(url), &mut server, |asked| {
            asked.reply(302, &[("location", location)], "");
        });
        let failed = failed.await;
        let expected = matches!(
            failed,
            Err(FetchError::NotWeb | FetchError::Userinfo | FetchError::BadRedirect)
        );
        assert!(expected, "{location}: {failed:?}");
    }
    server.finish();
}

#[tokio::test]
async fn an_https_servers_business_never_goes_unencrypted() {
    let unasked = Scripted::start().await;
    let fetch = on_behalf_of("https://127.0.0.1/");
    let failed = fetch.send(get(unasked.url()), Redirects::Follow).await;
    assert!(matches!(failed, Err(FetchError::Plain)), "{failed:?}");
    unasked.finish();
    // A redirect is checked like any other URL.
    let asked = get("https://127.0.0.1/").into_parts().0;
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::FOUND;
    answer
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static("http://127.0.0.1/"));
    let next = redirect(&asked, &answer).unwrap().unwrap();
    assert!(matches!(fetch.origin(&next), Err(FetchError::Plain)));
}

#[tokio::test]
async fn redirects_have_an_end() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let url = server.url().to_owned();
    let running = async {
        for _ in 0..=MAX_REDIRECTS {
            server
                .next()
                .await
                .reply(302, &[("location", "/again")], "");
        }
    };
    let (failed, ()) = tokio::join!(fetch.send(get(url), Redirects::Follow), running);
    assert!(
        matches!(failed, Err(FetchError::TooManyRedirects)),
        "{failed:?}"
    );
    server.finish();
}

#[tokio::test]
async fn a_redirect_that_is_not_to_be_followed_is_the_answer() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let url = server.url().to_owned();
    let answering = async {
        server
            .next()
            .await
            .reply(307, &[("location", "/again")], "");
    };
    let (answer, ()) = tokio::join!(fetch.send(get(&url), Redirects::Stop), answering);
    assert_eq!(answer.unwrap().status(), 307);
    // A POST does not become a GET.
    for status in [301, 302, 303] {
        let request = Request::post(&url).body(b"a".to_vec()).unwrap();
        let answer = meet(&fetch, request, &mut server, |asked| {
            asked.reply(status, &[("location", "/again")], "");
        });
        assert_eq!(answer.await.unwrap().status(), status);
    }
    server.finish();
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_dialled_where_it_was_judged() {
    let mut server = Scripted::start().await;
    let port = server.url().parse::<Uri>().unwrap().port_u16().unwrap();
    // A second lookup would lead here.
    let trap = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port))
        .await
        .unwrap();
    let lookups = Arc::new(AtomicUsize::new(0));
    let names = Names::scripted({
        let lookups = Arc::clone(&lookups);
        move |host| {
            assert_eq!(host, "as.example");
            match lookups.fetch_add(1, Ordering::Relaxed) {
                0 => vec![[127, 0, 0, 1].into()],
                _ => vec![[127, 0, 0, 2].into()],
            }
        }
    });
    let fetch = on_behalf_of("http://localhost/").with_names(names);
    let request = get(format!("http://as.example:{port}/token"));
    let answer = meet(&fetch, request, &mut server, |asked| {
        assert_eq!(asked.header("host"), format!("as.example:{port}"));
        asked.reply(200, &[], "good");
    });
    assert_eq!(answer.await.unwrap().body(), b"good");
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
    let trapped = tokio::time::timeout(Duration::ZERO, trap.accept()).await;
    assert!(trapped.is_err(), "dialled an address that was not judged");
}

#[tokio::test]
async fn one_bad_address_spoils_a_name() {
    let unasked = Scripted::start().await;
    let port = unasked.url().parse::<Uri>().unwrap().port_u16().unwrap();
    let names = Names::scripted(|_| vec![[127, 0, 0, 1].into(), [169, 254, 169, 254].into()]);
    let fetch = on_behalf_of("http://localhost/").with_names(names);
    let failed = fetch
        .send(get(format!("http://as.example:{port}/")), Redirects::Follow)
        .await;
    assert!(
        matches!(failed, Err(FetchError::OutOfReach(..))),
        "{failed:?}"
    );
    unasked.finish();
}

#[tokio::test]
async fn a_public_server_cannot_point_here() {
    let unasked = Scripted::start().await;
    let names = Names::scripted(|host| match host {
        "mcp.example" => vec![[8, 8, 8, 8].into()],
        _ => vec![[127, 0, 0, 1].into()],
    });
    let fetch = on_behalf_of("http://mcp.example/").with_names(names);
    for url in [
        unasked.url().to_owned(),
        unasked.url().replace("127.0.0.1", "localhost"),
    ] {
        let failed = fetch.send(get(url), Redirects::Follow).await;
        assert!(
            matches!(failed, Err(FetchError::OutOfReach(..))),
            "{failed:?}"
        );
    }
    unasked.finish();
}

/// A server that names hosts learns nothing about names on the private network.
#[tokio::test]
async fn what_a_name_stands_for_is_not_told() {
    let names = Names::scripted(|host| match host {
        "nobody.corp" => Vec::new(),
        _ => vec![[10, 1, 2, 3].into()],
    });
    // The server's own name has a private address as well, because its owner says so.
    let fetch = on_behalf_of("http://mcp.corp/").with_names(names);
    for host in ["wiki.corp", "nobody.corp", "mcp.corp"] {
        let failed = fetch.send(get(format!("http://{host}/")), Redirects::Follow);
        let told = failed.await.unwrap_err().to_string();
        let same = format!("{host} has no address that may be reached from here");
        assert_eq!(told, same);
    }
}

#[tokio::test]
async fn the_next_address_is_tried_when_nobody_is_at_the_first() {
    let mut server = Scripted::start().await;
    let port = server.url().parse::<Uri>().unwrap().port_u16().unwrap();
    let names = Names::scripted(|_| vec![[127, 0, 0, 3].into(), [127, 0, 0, 1].into()]);
    let fetch = on_behalf_of("http://localhost/").with_names(names);
    let request = get(format!("http://as.example:{port}/"));
    let answer = meet(&fetch, request, &mut server, |asked| {
        asked.reply(200, &[], "")
    });
    assert_eq!(answer.await.unwrap().status(), 200);
    let nobody = Names::scripted(|_| Vec::new());
    let fetch = fetch.with_names(nobody);
    let failed = fetch
        .send(get("http://as.example/"), Redirects::Follow)
        .await;
    assert!(
        matches!(failed, Err(FetchError::Unresolved(..))),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let url = server.url().to_owned();
    let announced = meet(&fetch, get(&url), &mut server, |asked| {
        asked.reply(200, &[], vec![b'x'; MAX_BODY + 1]);
    });
    assert!(matches!(
        announced.await,
        Err(FetchError::TooLarge(MAX_BODY))
    ));
    let unannounced = meet(&fetch, get(&url), &mut server, |asked| {
        let mut pen = asked.begin(200, &[]);
        pen.write(vec![b'x'; MAX_BODY]);
        pen.write("x");
    });
    assert!(matches!(
        unannounced.await,
        Err(FetchError::TooLarge(MAX_BODY))
    ));
    let largest = meet(&fetch, get(&url), &mut server, |asked| {
        asked.reply(200, &[], vec![b'x'; MAX_BODY]);
    });
    assert_eq!(largest.await.unwrap().body().len(), MAX_BODY);
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let url = server.url().to_owned();
    let mut sending = Box::pin(fetch.send(get(url), Redirects::Follow));
    let asked = tokio::select! {
        asked = server.next() => asked,
        answer = &mut sending => panic!("{answer:?}"),
    };
    let mut pen = asked.begin(200, &[]);
    pen.write("slow");
    // From here on, time advances whenever all tasks are idle.
    tokio::time::pause();
    let failed = sending.await;
    assert!(
        matches!(failed, Err(FetchError::TimedOut(TIME_LIMIT))),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_answer() {
    let mut server = Scripted::start().await;
    let fetch = on_behalf_of(server.url());
    let url = server.url().to_owned();
    let broken = meet(&fetch, get(&url), &mut server, |asked| {
        let mut pen = asked.begin(200, &[("content-length", "10")]);
        pen.write("half");
        pen.cut();
    });
    // Whether the head was still sent depends on the server.
    let broken = broken.await;
    let expected = matches!(
        broken,
        Err(FetchError::Broken(_) | FetchError::Egress(EgressError::Broken(_)))
    );
    assert!(expected, "{broken:?}");
}
