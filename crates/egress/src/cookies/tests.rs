use super::*;

const URL: CookieUrl<'_> = CookieUrl {
    https: false,
    host: "mcp.example.com",
    path: "/a/mcp",
};
const NOW: i64 = 1_800_000_000;

fn jar(cookies: &[&str]) -> Jar {
    let mut jar = Jar::default();
    for text in cookies {
        jar.keep(&Cookie::parse(*text).unwrap(), URL, NOW);
    }
    jar
}

fn sent_at(jar: &Jar, url: CookieUrl<'_>, now: i64) -> String {
    let header = jar.header_at(url, now);
    header.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

fn sent(cookies: &[&str]) -> String {
    sent_at(&jar(cookies), URL, NOW)
}

#[test]
fn what_was_set_is_sent_back() {
    assert_eq!(sent(&["SRV=r1; path=/"]), "SRV=r1");
    assert_eq!(
        sent(&["a=1", "b=2; Path=/a", "c=\"q u\""]),
        "a=1; b=2; c=\"q u\""
    );
    assert_eq!(sent(&[]), "");
}

#[test]
fn a_balancer_that_pins_anew_is_obeyed() {
    assert_eq!(sent(&["SRV=r1; path=/", "SRV=r2; path=/"]), "SRV=r2");
}

#[test]
fn longer_paths_come_first() {
    assert_eq!(
        sent(&["x=root; path=/", "x=deep; path=/a/mcp"]),
        "x=deep; x=root"
    );
}

#[test]
fn paths_match_by_segment() {
    assert_eq!(sent(&["x=1; path=/a/m"]), "");
    assert_eq!(sent(&["x=1; path=/b"]), "");
    assert_eq!(sent(&["x=1; path=/a/"]), "x=1");
    assert_eq!(
        sent(&["x=1; path=odd"]),
        "x=1",
        "a path without a slash is the default path"
    );
}

#[test]
fn expiry_by_age_and_by_date() {
    assert_eq!(sent(&["x=1; Max-Age=0"]), "");
    assert_eq!(
        sent(&["x=1", "x=; Max-Age=0"]),
        "",
        "an expired cookie removes the older one"
    );
    assert_eq!(sent(&["x=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT"]), "");
    assert_eq!(
        sent(&["x=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT; Max-Age=60"]),
        "x=1"
    );
    let jar = jar(&["x=1; Max-Age=60"]);
    assert_eq!(sent_at(&jar, URL, NOW + 59), "x=1");
    assert_eq!(sent_at(&jar, URL, NOW + 60), "");
}

#[test]
fn a_domain_never_widens_and_a_foreign_one_is_refused() {
    assert_eq!(sent(&["x=1; Domain=example.com"]), "x=1");
    assert_eq!(sent(&["x=1; Domain=.MCP.example.com"]), "x=1");
    assert_eq!(sent(&["x=1; Domain=other.com"]), "");
    assert_eq!(sent(&["x=1; Domain=ple.com"]), "");
    assert_eq!(sent(&["x=1; Domain=deeper.mcp.example.com"]), "");
}

#[test]
fn secure_means_https() {
    let jar = jar(&["x=1; Secure"]);
    assert_eq!(sent_at(&jar, URL, NOW), "");
    assert_eq!(sent_at(&jar, CookieUrl { https: true, ..URL }, NOW), "x=1");
}

#[test]
fn count_and_size_are_capped() {
    let many: Vec<String> = (0..100).map(|n| format!("c{n}=1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(jar(&many).cookies.len(), MAX_COOKIES);
    assert!(sent(&many).ends_with("c99=1"), "the newest stays");

    let mut jar = Jar::default();
    let huge = HeaderValue::try_from(format!("x={}", "y".repeat(MAX_COOKIE_BYTES))).unwrap();
    jar.store(&HeaderMap::from_iter([(header::SET_COOKIE, huge)]), URL);
    assert!(jar.cookies.is_empty());
}

#[test]
fn values_cannot_be_printed() {
    assert!(!format!("{:?}", jar(&["SRV=secret"])).contains("secret"));
}
