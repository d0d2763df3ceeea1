//! What must hold of any text that is read as a configuration: it is understood or refused with
//! places and advice, it never shows what came out of the environment, and it can be read again.

use bowline::config::{Config, ConfigErrors, Flow, ServerOAuth, Target};

/// What every variable has that is set; no message may have it.
const SECRET: &str = "sEcReT-0123";

/// Panics where the input shows a bug.
pub(crate) fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let read = parse(text);
    assert_eq!(read, parse(text), "reading twice differs");
    match read {
        Ok(config) => understood(&config),
        Err(errors) => refused(&errors, text),
    }
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse("fuzz.toml", text, &|name| {
        // Some are set and some are not.
        (name.len() % 2 == 0).then(|| SECRET.to_owned())
    })
}

fn understood(config: &Config) {
    for (name, server) in &config.servers {
        assert!(!name.to_string().is_empty());
        let is_somewhere = match &server.target {
            Target::Command(command) => !command.program.is_empty(),
            way => !way.urls().is_empty(),
        };
        assert!(is_somewhere, "a server that is nowhere");
        for url in server.target.urls() {
            let scheme = url.scheme_str().unwrap_or_default();
            assert!(["http", "https"].contains(&scheme), "{scheme}");
            assert!(url.host().is_some_and(|host| !host.is_empty()));
        }
        assert!(server.headers.values().all(|value| value.is_sensitive()));
        if let Some(oauth) = &server.oauth {
            assert!(!server.headers.contains_key("authorization"), "two tokens");
            signing_in(oauth);
        }
    }
    assert!(config.sign_in_problems().is_empty());
}

fn signing_in(oauth: &ServerOAuth) {
    assert_eq!(oauth.flow == Flow::Drive, oauth.redirect_uri.is_some());
    if let Some(uri) = &oauth.redirect_uri {
        assert!(uri.as_str().is_ascii() && uri.as_str().contains(':'));
        assert!(!uri.as_str().contains(['#', ' ']));
    }
    let metadata = oauth.client_metadata_url.as_deref().unwrap_or("https://");
    assert!(metadata.to_ascii_lowercase().starts_with("https://"));
    let has_secret = oauth.client.as_ref().is_some_and(|it| it.secret.is_some());
    assert!(
        !has_secret || oauth.issuer.is_some(),
        "a secret for anybody"
    );
    let in_words = |scope: &String| !scope.is_empty() && !scope.contains(' ');
    assert!(oauth.scopes.iter().all(in_words));
}

fn refused(errors: &ConfigErrors, text: &str) {
    assert!(!errors.is_empty(), "refused without a reason");
    assert_eq!(errors.len(), errors.iter().len());
    for problem in errors.iter() {
        assert!(!problem.message().is_empty());
        assert!((1..=text.matches('\n').count() + 1).contains(&problem.line()));
        assert!(problem.column() >= 1);
    }
    let shown = format!("{errors} {errors:?} {}", errors.render(true));
    assert!(
        !shown.contains(SECRET) || text.contains(SECRET),
        "a variable's value is shown: {shown}"
    );
}
