//! `bowline login`, `logout` and `auth`: what people type and read. The library does the rest.

use std::process::ExitCode;

use anyhow::Context as _;
use bowline::config::{CallerName, Config, shown_url};
use bowline::login::{GrantManager, GrantManagerError, GrantSummary, LoginError, SignOutOutcome};
use bowline_system::printable::printable;

use crate::args::{AuthArguments, LogoutArguments, SignInArguments};
use crate::auth_status::{AuthStatus, AuthStatusRow, date, escaped_json, until};
use crate::failure::Failure;
use crate::named_server::NamedServer;
use crate::plan::config_of;
use crate::signals::Signals;
use crate::{browser, print};

/// What a program ends with that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Signs the local caller in.
pub(crate) async fn login(arguments: &SignInArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    tokio::select! {
        signed_in = signed_in(arguments) => signed_in,
        () = signals.stop() => {
            print("\nCancelled; nobody was signed in.\n")?;
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

async fn signed_in(arguments: &SignInArguments) -> Result<ExitCode, Failure> {
    let (NamedServer { name, server, .. }, config) = find(arguments)?;
    if !config.callers.is_empty() {
        return Err(Failure::usage(
            "the gateway has [callers], and callers do not sign in on the command line",
            "sign in with the link that the gateway sends to the caller",
        ));
    }
    let desk = open(&config).await?;
    let failed = |error| failure(error, &name);
    let signing_in = desk.begin(&name, &server).await.map_err(failed)?;
    let link = signing_in.link();
    let opened = match signing_in.browser_link().is_some_and(browser::open) {
        true => "Your browser opens this link",
        false => "Open this link in a browser on this machine",
    };
    print(format_args!(
        "{opened} to sign in at {name}:\n\n  {link}\n\nWaiting until {}; Ctrl-C cancels.\n",
        date(signing_in.ends()),
    ))?;
    signing_in.finish().await.map_err(failed)?;
    let signed_in = desk.signed_in(None, &server).await.map_err(failed)?;
    match signed_in {
        Some(signed_in) => print(format_args!(
            "Signed in at {name} by {}, until {}.\nStored in {}.\n",
            printable(&signed_in.issuer),
            until(&signed_in),
            desk.place(),
        )),
        None => Err(failed(LoginError::Failed(
            "somebody signed out at the same time".to_owned(),
        ))),
    }
}

/// Signs a caller out.
pub(crate) async fn logout(arguments: &LogoutArguments) -> Result<ExitCode, Failure> {
    let LogoutArguments { sign_in, caller } = arguments;
    let (NamedServer { name, server, .. }, config) = find(sign_in)?;
    let caller = leaving(caller.as_deref(), &config)?;
    let desk = open(&config).await?;
    let out = desk.sign_out(caller.as_ref(), &name, &server).await;
    match out.map_err(|error| failure(error, &name))? {
        SignOutOutcome::NotSignedIn => print(format_args!("Nobody was signed in at {name}.\n")),
        SignOutOutcome::Revoked => print(format_args!(
            "Signed out at {name}; the authorization server revoked the tokens.\n"
        )),
        SignOutOutcome::NotOffered => print(format_args!(
            "Signed out at {name}. The authorization server cannot revoke tokens: they are valid until they expire.\n"
        )),
        SignOutOutcome::Failed(error) => {
            print(format_args!(
                "Signed out at {name}, but the authorization server did not revoke the tokens, which may be valid until they expire: {error}\n"
            ))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Who is to be signed out: where callers have names, one of them, or one that was among them.
fn leaving(written: Option<&str>, config: &Config) -> Result<Option<CallerName>, Failure> {
    match written {
        Some(name) => name.parse().map(Some).map_err(|_| {
            Failure::usage(
                format!("`{}` is not a caller's name", name.escape_debug()),
                "write the name as in `[callers.NAME]`",
            )
        }),
        None if config.callers.is_empty() => Ok(None),
        None => {
            let names: Vec<&str> = config.callers.keys().map(AsRef::as_ref).collect();
            Err(Failure::usage(
                "the gateway has [callers], and none of them was named",
                format!("add `--caller NAME`: there are `{}`", names.join("`, `")),
            ))
        }
    }
}

/// Says who is signed in where.
pub(crate) async fn auth(arguments: &AuthArguments) -> Result<ExitCode, Failure> {
    let config = config_of(arguments.config.as_deref())?;
    let desk = open(&config).await?;
    let rows = match &arguments.config {
        Some(_) => configured(&config, &desk).await,
        None => desk
            .all()
            .await
            .map(|all| all.into_iter().map(row).collect()),
    };
    let status = AuthStatus {
        rows: rows.map_err(|error| Failure::from(anyhow::Error::new(error)))?,
        place: desk.place(),
    };
    match arguments.json {
        true => print(format_args!("{}\n", escaped_json(&status.to_json()))),
        false => print(status),
    }
}

async fn configured(
    config: &Config,
    desk: &GrantManager,
) -> Result<Vec<AuthStatusRow>, LoginError> {
    let mut callers: Vec<_> = config.callers.keys().map(Some).collect();
    if callers.is_empty() {
        callers.push(None);
    }
    let mut rows = Vec::new();
    for (name, server) in &config.servers {
        let url = server.target.urls().first();
        let url = url.map(|url| shown_url(&url.to_string()));
        for caller in &callers {
            let signed_in = match &server.oauth {
                Some(_) => Some(desk.signed_in(*caller, server).await?),
                None => None,
            };
            rows.push(AuthStatusRow {
                server: name.to_string(),
                url: url.clone().unwrap_or_default(),
                caller: caller.map(ToString::to_string),
                signed_in,
            });
        }
    }
    Ok(rows)
}

fn row(signed_in: GrantSummary) -> AuthStatusRow {
    AuthStatusRow {
        server: signed_in.server_url.clone(),
        url: signed_in.server_url.clone(),
        caller: signed_in.caller.clone(),
        signed_in: Some(Some(signed_in)),
    }
}

async fn open(config: &Config) -> Result<GrantManager, Failure> {
    GrantManager::open(config)
        .await
        .map_err(|error| match error {
            GrantManagerError::InMemory if config.store.lacks_state_directory => Failure::usage(
                "there is no directory to store tokens in: neither XDG_STATE_HOME nor HOME is set",
                "set one of them, or name a directory with `path` in `[store]`",
            ),
            GrantManagerError::InMemory => Failure::usage(
                format!("{error}, because `[store]` is of kind `memory`"),
                "sign in with the link that the gateway sends, or set `kind = \"file\"`",
            ),
            GrantManagerError::Start(error) => anyhow::Error::new(*error).into(),
        })
}

fn failure(error: LoginError, name: &str) -> Failure {
    match error {
        LoginError::NotNeeded => Failure::usage(
            format!("{name} needs no sign-in: {error}"),
            "use it as it is",
        ),
        LoginError::NoRegistration => Failure::usage(
            error.to_string(),
            "register Bowline there by hand, with the redirect URI `http://127.0.0.1/callback`, and \
             write the `client_id` that you get into `[servers.NAME.oauth]`",
        ),
        error => anyhow::Error::new(error).into(),
    }
}

/// The server that the command line names, if people sign in there, and the configuration.
fn find(arguments: &SignInArguments) -> Result<(NamedServer, Config), Failure> {
    let file = arguments.config.as_deref();
    let (mut found, config) = NamedServer::read(&arguments.server, file)?;
    if !found.is_configured {
        found.server.oauth = Some(Default::default());
    }
    if found.server.oauth.is_none() {
        return Err(Failure::usage(
            format!("sign-in is not configured for {}", found.name),
            format!("add `[servers.{}.oauth]` to the file", found.name),
        ));
    }
    Ok((found, config))
}
