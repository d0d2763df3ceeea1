use super::*;

/// All that is logged.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_secret_is_logged_whoever_listens() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let mut stage = Stage::start().await;
    let client = confidential(None);
    let begun = stage.begin(&client, &["a"]).await;
    let exchanged = stage.exchange(&client, &begun, |asked| {
        let mut answer = bearer();
        answer["x_extra"] = "secret-text".into();
        grant(asked, &answer);
    });
    exchanged.await.unwrap();
    stage
        .refresh(&[], |asked| grant(asked, &bearer()))
        .await
        .unwrap();
    let refused = stage.refresh(&[], |asked| refuse(asked, 400, "invalid_grant"));
    refused.await.unwrap_err();
    tracing::debug!("the log is heard");
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("the log is heard"));
    let secrets = [
        "the-code",
        "p&ss",
        "p%26ss",
        "new-access",
        "old-refresh",
        "secret-text",
    ];
    let flow = [begun.state.expose(), begun.verifier.expose()];
    for secret in secrets.into_iter().chain(flow) {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(!log.contains("rmcp"), "{log}");
}
