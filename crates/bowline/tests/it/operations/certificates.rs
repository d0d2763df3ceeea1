//! A server whose certificate is of an authority of its own.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::certificates;
use bowline_testbed::scripted::initialize_result;
use bowline_testbed::tls::Terminator;

use crate::kit::client::Client;

/// Two servers behind certificates of the same authority; the first is trusted by it.
fn text(urls: [&str; 2], ca: &str) -> String {
    let [one, two] = urls;
    format!(
        "listen = '127.0.0.1:0'\nadmin = 'off'\n[store]\nkind = 'memory'\n\
         [servers.one]\nurl = '{one}'\n{ca}\nrecovery_budget = '1s'\n\
         [servers.two]\nurl = '{two}'\nrecovery_budget = '1s'\n"
    )
}

fn parsed(text: &str) -> Config {
    Config::parse("test", text, &|_| None).unwrap_or_else(|errors| panic!("{errors}"))
}

#[tokio::test]
async fn an_authority_is_trusted_for_the_server_that_names_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    certificates::make(directory.path(), "server")
        .await
        .unwrap();
    let server = Answering::start(|seen: &Seen| match seen.method.as_str() {
        "POST" => seen.result(&initialize_result()),
        _ => Said::status(405),
    })
    .await;
    let start = || Terminator::start(server.address(), directory.path(), "server");
    let (one, two) = (start().await.unwrap(), start().await.unwrap());
    let urls = [&*one.url(), &*two.url()];
    let ca = format!("ca_file = '{}'", directory.path().join("ca.pem").display());
    let gateway = Gateway::start(parsed(&text(urls, &ca))).await.unwrap();
    let status = async |name: &str| {
        let mut client = Client::at(format!("http://{}/mcp/{name}", gateway.listen()));
        client.initialize().await.status.as_u16()
    };
    assert_eq!(status("one").await, 200);
    assert_ne!(status("two").await, 200);
    // A reload can give it.
    let gateway = Gateway::start(parsed(&text(urls, ""))).await.unwrap();
    let asked = server.seen().len();
    let status = async |name: &str| {
        let mut client = Client::at(format!("http://{}/mcp/{name}", gateway.listen()));
        client.initialize().await.status.as_u16()
    };
    assert_ne!(status("one").await, 200);
    assert_eq!(server.seen().len(), asked);
    gateway.reload(parsed(&text(urls, &ca))).unwrap();
    // Its endpoint was found to be ill, and is looked at again.
    let well = async {
        while status("one").await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), well)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_that_vouches_for_nothing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    certificates::make(directory.path(), "server")
        .await
        .unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("empty.pem"), "").unwrap();
    let spoiled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(at("spoiled.pem"), spoiled).unwrap();
    let urls = ["https://127.0.0.1:9/mcp"; 2];
    for (file, why) in [
        ("none.pem", "`ca_file` cannot be read"),
        ("empty.pem", "`ca_file` has no certificate"),
        ("server.key", "`ca_file` has no certificate"),
        (
            "spoiled.pem",
            "`ca_file` has something in it that is not a certificate",
        ),
    ] {
        let ca = format!("ca_file = '{}'", at(file).display());
        let errors = Config::parse("test", &text(urls, &ca), &|_| None).unwrap_err();
        assert!(errors.to_string().contains(why), "{file}: {errors}");
    }
    let plain = ["http://127.0.0.1:9/mcp"; 2];
    let ca = format!("ca_file = '{}'", at("ca.pem").display());
    let errors = Config::parse("test", &text(plain, &ca), &|_| None).unwrap_err();
    assert!(
        errors.to_string().contains("means nothing without TLS"),
        "{errors}"
    );
}
