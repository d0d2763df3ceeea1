//! Certificates of clients as callers, beside keys.

use bowline::config::CertificateHash;
use rustls::version::{TLS12, TLS13};

use super::{Site, Speaker, make, pair};

const KEY: &str = "0123456789abcdef";

/// A gateway that knows the certificate `ann`, whose caller has a key as well, and the key of `bob`.
async fn site() -> Site {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ann", "stranger"] {
        make(directory.path(), name).await;
    }
    Site::start(|path| {
        for name in ["ann", "stranger"] {
            for kind in ["pem", "key"] {
                let name = format!("{name}.{kind}");
                std::fs::copy(directory.path().join(&name), path.join(&name)).unwrap();
            }
        }
        let hash = CertificateHash::of(&pair(path, "ann", "ann").cert[0]);
        format!(
            "[callers.ann]\nkey = '{KEY}'\ncertificate_sha256 = '{hash}'\n\
             [callers.bob]\nkey = 'b-{KEY}'\n"
        )
    })
    .await
}

#[tokio::test]
async fn a_certificate_is_a_caller_and_anything_else_gets_a_reason() {
    let site = site().await;
    let ann = pair(site.path(), "ann", "ann");
    let stranger = pair(site.path(), "stranger", "stranger");
    let hash = CertificateHash::of(&stranger.cert[0]).to_string();
    for version in [&TLS12, &TLS13] {
        let speaker = |shows: Option<_>| Speaker {
            shows,
            version: Some(version),
            ..Speaker::default()
        };
        let ask = async |shows, headers: &str| {
            let heard = site.ask(&speaker(shows), headers).await.unwrap();
            (heard.status, heard.body)
        };
        let bearer = |key: &str| format!("authorization: Bearer {key}\r\n");
        let (status, body) = ask(Some(ann.clone()), "").await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(ask(None, &bearer(KEY)).await.0, 200);
        assert_eq!(ask(Some(stranger.clone()), &bearer(KEY)).await.0, 200);
        for (shows, headers, reason, word) in [
            (None, String::new(), "unauthorized", "a client certificate"),
            (
                Some(&stranger),
                String::new(),
                "unknown_certificate",
                &*hash,
            ),
            (
                Some(&ann),
                bearer("wrong"),
                "unauthorized",
                "requires a key",
            ),
            (
                Some(&ann),
                bearer(&format!("b-{KEY}")),
                "two_callers",
                "different callers",
            ),
        ] {
            let (status, body) = ask(shows.cloned(), &headers).await;
            assert_eq!(status, 401, "{body}");
            assert!(body.contains(&format!(r#""reason":"{reason}""#)), "{body}");
            assert!(body.contains(word), "{body}");
        }
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_does_not_get_in() {
    let site = site().await;
    // The certificate of one, and the key of another: certificates are public.
    let stolen = pair(site.path(), "ann", "stranger");
    for version in [&TLS12, &TLS13] {
        let speaker = Speaker {
            version: Some(version),
            ..Speaker::showing(stolen.clone())
        };
        let refused = site.ask(&speaker, "").await.unwrap_err();
        assert!(refused.to_string().contains("DecryptError"), "{refused}");
    }
}

#[tokio::test]
async fn a_session_is_the_callers_by_key_and_by_certificate() {
    let site = site().await;
    let ann = Speaker::showing(pair(site.path(), "ann", "ann"));
    let heard = site.ask(&ann, "").await.unwrap();
    let session = heard.head.split("mcp-session-id: ").nth(1).unwrap();
    let session = session.split("\r\n").next().unwrap();
    let key = |key: &str| format!("authorization: Bearer {key}\r\nmcp-session-id: {session}\r\n");
    let delete = async |by: &Speaker, headers: &str| {
        use tokio::io::AsyncWriteExt as _;
        let mut stream = site.connect(by).await.unwrap();
        let request = format!("DELETE /mcp/s HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        super::hear(&mut stream).await.unwrap().status
    };
    assert_eq!(
        delete(&Speaker::default(), &key(&format!("b-{KEY}"))).await,
        404
    );
    assert_eq!(delete(&Speaker::default(), &key(KEY)).await, 204);
}
