//! The files of the certificate: what can be wrong with them, and what happens when they change.

use std::fs;
use std::path::Path;
use std::process::Command;

use bowline::Gateway;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Site, Speaker, exchange, install, make, pair, parsed};
use crate::kit::log::Log;

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone().into_owned()
}

#[tokio::test]
async fn a_replaced_certificate_is_for_new_connections_and_a_broken_one_for_none() {
    let log = Log::default();
    let _kept = log.keep();
    let site = Site::start(|_| String::new()).await;
    let mut old = site.connect(&Speaker::default()).await.unwrap();
    let first = shown(&old);
    make(site.path(), "second").await;
    let second = Speaker {
        trusts: "second",
        ..Speaker::default()
    };
    // The files change one after the other, and between the two they do not belong together.
    fs::copy(site.path().join("second.pem"), site.path().join("tls.crt")).unwrap();
    let error = site.gateway.reload_certificate().unwrap_err();
    assert!(error.to_string().contains("is not the key of"), "{error}");
    assert_eq!(
        shown(&site.connect(&Speaker::default()).await.unwrap()),
        first
    );
    install(site.path(), "second");
    site.gateway.reload_certificate().unwrap();
    assert!(log.contains("certificate replaced"));
    let new = site.connect(&second).await.unwrap();
    assert_ne!(shown(&new), first);
    site.connect(&Speaker::default()).await.unwrap_err();
    // The connection from before goes on.
    assert_eq!(exchange(&mut old, "").await.unwrap().status, 200);
    for spoiled in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(site.path().join("tls.crt"), spoiled).unwrap();
        site.gateway.reload_certificate().unwrap_err();
        site.connect(&second).await.unwrap();
    }
    // The whole configuration brings it as well.
    install(site.path(), "server");
    site.gateway
        .reload(parsed(site.path(), "").unwrap())
        .unwrap();
    site.connect(&Speaker::default()).await.unwrap();
    let mut without = parsed(site.path(), "").unwrap();
    without.tls = None;
    let error = site.gateway.reload(without).unwrap_err();
    assert_eq!(error.keys, ["tls"]);
}

#[tokio::test]
async fn callers_with_certificates_can_come_and_go() {
    let site = Site::start(|_| "[callers.ann]\nkey = '0123456789abcdef'\n".to_owned()).await;
    make(site.path(), "ann").await;
    let ann = pair(site.path(), "ann", "ann");
    let hash = bowline::config::CertificateHash::of(&ann.cert[0]);
    let ann = Speaker::showing(ann);
    let status = async || site.ask(&ann, "").await.unwrap().status;
    assert_eq!(status().await, 401);
    let mut kept = site.connect(&ann).await.unwrap();
    let with = format!("[callers.ann]\ncertificate_sha256 = ['{hash}']\n");
    let config = |callers: &str| {
        let mut config = parsed(site.path(), callers).unwrap();
        let behind = bowline::config::Server::from_url("http://127.0.0.1:9/").unwrap();
        config.servers.insert("s".parse().unwrap(), behind);
        config
    };
    site.gateway.reload(config(&with)).unwrap();
    // Who was not asked for a certificate has shown none.
    assert_eq!(exchange(&mut kept, "").await.unwrap().status, 401);
    assert_ne!(status().await, 401);
    let mut kept = site.connect(&ann).await.unwrap();
    assert_ne!(exchange(&mut kept, "").await.unwrap().status, 401);
    let bob = "[callers.bob]\nkey = '0123456789abcdef'\n";
    site.gateway.reload(config(bob)).unwrap();
    assert_eq!(exchange(&mut kept, "").await.unwrap().status, 401);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for name in ["server", "other"] {
        make(path, name).await;
    }
    let spoil = |cert: Option<&str>, key: Option<&str>| {
        install(path, "server");
        for (name, text) in [("tls.crt", cert), ("tls.key", key)] {
            match text {
                Some("") => fs::remove_file(path.join(name)).unwrap(),
                Some(text) => fs::write(path.join(name), text).unwrap(),
                None => {}
            }
        }
        parsed(path, "").unwrap_err()
    };
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    let encrypted = |options: &[&str]| {
        let key = path.join("server.key");
        let mut command = Command::new("openssl");
        command.args(options).arg("-in").arg(key);
        let output = command.args(["-passout", "pass:x"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (pkcs8, legacy) = (
        encrypted(&["pkcs8", "-topk8"]),
        encrypted(&["ec", "-aes128"]),
    );
    let (other, server_key, other_ca) =
        (read("other.key"), read("server.key"), read("other-ca.pem"));
    let chain_first = other_ca + &read("server.pem");
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (cert, key, why, help) in [
        (
            None,
            Some(&*other),
            "`key` is not the key of",
            "made together",
        ),
        (
            Some(&*chain_first),
            None,
            "`key` is not the key of",
            "comes first",
        ),
        (
            Some(""),
            None,
            "`cert` cannot be read: No such file",
            "correct the path",
        ),
        (
            None,
            Some(""),
            "`key` cannot be read: No such file",
            "correct the path",
        ),
        (None, Some(&pkcs8), "`key` is encrypted", "openssl pkey -in"),
        (
            None,
            Some(&legacy),
            "`key` is encrypted",
            "openssl pkey -in",
        ),
        (
            None,
            Some("x"),
            "`key` has no private key",
            "BEGIN PRIVATE KEY",
        ),
        (
            None,
            Some(nonsense),
            "`key` cannot be used",
            "at least 2048 bits",
        ),
        (
            Some(&server_key),
            None,
            "`cert` has no certificate",
            "BEGIN CERTIFICATE",
        ),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            None,
            "`cert` cannot be used",
            "version 3",
        ),
    ] {
        let errors = spoil(cert, key);
        assert!(
            errors.contains(why) && errors.contains(help),
            "{why}: {errors}"
        );
        assert!(!errors.contains("PRIVATE KEY-----\nM"), "{errors}");
    }
    fs::remove_file(path.join("tls.key")).unwrap();
    fs::create_dir(path.join("tls.key")).unwrap();
    let errors = parsed(path, "").unwrap_err();
    assert!(errors.contains("`key` cannot be read"), "{errors}");
}

#[tokio::test]
async fn what_has_no_meaning_with_tls_or_without_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), "server").await;
    install(directory.path(), "server");
    let hash = "0".repeat(64);
    let caller = format!("[callers.ann]\ncertificate_sha256 = '{hash}'\n");
    let parse = |text: &str| {
        let parsed = bowline::config::Config::parse("test", text, &|_| None);
        parsed.map_err(|errors| errors.to_string())
    };
    let errors = parse(&caller).unwrap_err();
    assert!(errors.contains("means nothing without TLS"), "{errors}");
    let errors = parse("[tls]\ncert = '/a'\n").unwrap_err();
    assert!(errors.contains("`tls` has no `key`"), "{errors}");
    let errors = parse("[tls]\n").unwrap_err();
    assert!(errors.contains("`tls` has no `cert`"), "{errors}");
    let unix = "listen = 'unix:/run/b.sock'\n[tls]\ncert = '/a'\nkey = '/b'\n";
    let errors = parse(unix).unwrap_err();
    assert!(errors.contains("nothing on a Unix socket"), "{errors}");
    let with = |more: &str| parsed(directory.path(), more);
    with(&caller).unwrap();
    for (callers, why) in [
        (
            "[callers.ann]\ncertificate_sha256 = 'abc'\n",
            "not a SHA-256 hash",
        ),
        ("[callers.ann]\ncertificate_sha256 = []\n", "an empty list"),
        (
            "[callers.ann]\n",
            "neither `key` nor `key_sha256` nor `certificate_sha256`",
        ),
        (
            &*format!("{caller}{}", caller.replace("ann", "bob")),
            "the same certificate as",
        ),
    ] {
        let errors = with(callers).unwrap_err();
        assert!(errors.contains(why), "{errors}");
    }
}

#[tokio::test]
async fn a_key_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    make(path, "server").await;
    install(path, "server");
    let start = async |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(path.join("tls.key"), mode).unwrap();
        let log = Log::default();
        let kept = log.keep();
        let gateway = Gateway::start(with_server(path)).await.unwrap();
        drop((kept, gateway));
        log.contains("can read or change the key")
    };
    assert!(start(0o644).await);
    assert!(start(0o640).await);
    assert!(!start(0o600).await);
}

fn with_server(path: &Path) -> bowline::config::Config {
    parsed(path, "[servers.s]\nurl = 'http://127.0.0.1:9/'\n").unwrap()
}
