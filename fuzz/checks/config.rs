//! What must hold of any text that is read as a configuration: it is understood or refused with
//! places and advice, it never shows what came out of the environment, and it can be read again.

use bowline::config::{Config, ConfigErrors};

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
        assert!(!server.way.urls().is_empty(), "a server that is nowhere");
        for url in server.way.urls() {
            let scheme = url.scheme_str().unwrap_or_default();
            assert!(["http", "https"].contains(&scheme), "{scheme}");
            assert!(url.host().is_some_and(|host| !host.is_empty()));
        }
        assert!(server.headers.values().all(|value| value.is_sensitive()));
    }
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
