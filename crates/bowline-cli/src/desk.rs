//! Signing in and out on the command line, and saying who is signed in. How that is done is the
//! library's; here is what people type and read.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::config::{CallerName, Config, Server, shown_url};
use bowline::sign_in::{Desk, DeskError, NotSignedIn, SignedIn, SignedOut};

use crate::args::{AuthArguments, ConfigArguments, LogoutArguments, SignInArguments};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::standing::{Standing, Standings, date, printable, until};
use crate::{browser, environment, print};

/// What a program ends with that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// A server that somebody named.
struct Named {
    /// As people know it.
    name: String,
    server: Server,
}

/// Signs the local caller in.
pub(crate) async fn login(arguments: &SignInArguments) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    tokio::select! {
        signed_in = signed_in(arguments) => signed_in,
        () = signals.stop() => {
            print("\nGiven up; nobody was signed in.\n")?;
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

async fn signed_in(arguments: &SignInArguments) -> Result<ExitCode, Failure> {
    let config = config(arguments.config.as_deref())?;
    if !config.callers.is_empty() {
        return Err(Failure::usage(
            "the gateway tells its callers apart by keys, and nobody of them signs in here",
            "sign in by the link that the gateway hands out to the caller",
        ));
    }
    let Named { name, server } = Named::find(&arguments.server, &config, arguments)?;
    let desk = open(&config).await?;
    let failed = |error| failure(error, &name);
    let signing_in = desk.begin(&name, &server).await.map_err(failed)?;
    let link = signing_in.link();
    let opened = match browser::open(link) {
        true => "Your browser opens this link",
        false => "Open this link in a browser on this machine",
    };
    print(format_args!(
        "{opened} to sign in at {name}:\n\n  {link}\n\nWaiting until {}; Ctrl-C gives up.\n",
        date(signing_in.ends()),
    ))?;
    signing_in.finish().await.map_err(failed)?;
    let signed_in = desk.signed_in(None, &server).await.map_err(failed)?;
    match signed_in {
        Some(signed_in) => print(format_args!(
            "Signed in at {name} by {}, until {}.\nKept in {}.\n",
            printable(&signed_in.issuer),
            until(&signed_in),
            desk.place(),
        )),
        None => Err(failed(NotSignedIn::Failed(
            "somebody signed out at the same time".to_owned(),
        ))),
    }
}

/// Signs a caller out.
pub(crate) async fn logout(arguments: &LogoutArguments) -> Result<ExitCode, Failure> {
    let LogoutArguments { sign_in, caller } = arguments;
    let config = config(sign_in.config.as_deref())?;
    let caller = leaving(caller.as_deref(), &config)?;
    let Named { name, server } = Named::find(&sign_in.server, &config, sign_in)?;
    let desk = open(&config).await?;
    let out = desk.sign_out(caller.as_ref(), &server).await;
    match out.map_err(|error| failure(error, &name))? {
        SignedOut::AlreadyOut => print(format_args!("Nobody was signed in at {name}.\n")),
        SignedOut::Revoked => print(format_args!(
            "Signed out at {name}; the authorization server took back what it had granted.\n"
        )),
        SignedOut::NotOffered => print(format_args!(
            "Signed out at {name}. The authorization server has no way to take back what it granted: \
             tokens are good until they end.\n"
        )),
        SignedOut::Failed(error) => {
            print(format_args!(
                "Signed out at {name}; but the authorization server did not take back what it \
                 granted, and tokens may be good until they end: {error}\n"
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
                "write the name as it stands in `[callers.NAME]`",
            )
        }),
        None if config.callers.is_empty() => Ok(None),
        None => {
            let names: Vec<&str> = config.callers.keys().map(AsRef::as_ref).collect();
            Err(Failure::usage(
                "the gateway tells its callers apart by keys, and it is not said whom to sign out",
                format!("add `--caller NAME`: there are `{}`", names.join("`, `")),
            ))
        }
    }
}

/// Says who is signed in where.
pub(crate) async fn auth(arguments: &AuthArguments) -> Result<ExitCode, Failure> {
    let config = config(arguments.config.as_deref())?;
    let desk = open(&config).await?;
    let rows = match &arguments.config {
        Some(_) => configured(&config, &desk).await,
        None => desk
            .all()
            .await
            .map(|all| all.into_iter().map(row).collect()),
    };
    let standings = Standings {
        rows: rows.map_err(|error| Failure::from(anyhow::Error::new(error)))?,
        place: desk.place(),
    };
    match arguments.json {
        true => print(format_args!("{:#}\n", standings.to_json())),
        false => print(standings),
    }
}

async fn configured(config: &Config, desk: &Desk) -> Result<Vec<Standing>, NotSignedIn> {
    let mut callers: Vec<_> = config.callers.keys().map(Some).collect();
    if callers.is_empty() {
        callers.push(None);
    }
    let mut rows = Vec::new();
    for (name, server) in &config.servers {
        let url = server.way.urls().first();
        let url = url.map(|url| shown_url(&url.to_string()));
        for caller in &callers {
            let signed_in = match &server.oauth {
                Some(_) => Some(desk.signed_in(*caller, server).await?),
                None => None,
            };
            rows.push(Standing {
                server: name.to_string(),
                url: url.clone().unwrap_or_default(),
                caller: caller.map(ToString::to_string),
                signed_in,
            });
        }
    }
    Ok(rows)
}

fn row(signed_in: SignedIn) -> Standing {
    Standing {
        server: signed_in.server_url.clone(),
        url: signed_in.server_url.clone(),
        caller: signed_in.caller.clone(),
        signed_in: Some(Some(signed_in)),
    }
}

/// The file's configuration; without one, where everything is that has a place without being told.
fn config(file: Option<&Path>) -> Result<Config, Failure> {
    match file {
        Some(file) => {
            let arguments = ConfigArguments {
                config: Some(file.to_owned()),
                ..ConfigArguments::default()
            };
            Ok(Plan::new(&arguments, &environment::variable)?.config)
        }
        None => Config::parse("", "", &environment::variable).map_err(Failure::Config),
    }
}

async fn open(config: &Config) -> Result<Desk, Failure> {
    Desk::open(config).await.map_err(|error| match error {
        DeskError::InMemory if config.store.lacks_state_directory => Failure::usage(
            "there is no place to keep what is signed in for: neither XDG_STATE_HOME nor HOME is set",
            "set one of them, or name a directory with `path` in `[store]`",
        ),
        DeskError::InMemory => Failure::usage(
            format!("{error}, because `[store]` is of kind `memory`"),
            "sign in by the link that the gateway hands out, or write `kind = \"file\"`",
        ),
        DeskError::Start(error) => anyhow::Error::new(*error).into(),
    })
}

fn failure(error: NotSignedIn, name: &str) -> Failure {
    match error {
        NotSignedIn::NotNeeded => Failure::usage(
            format!("{name} needs no sign-in: {error}"),
            "use it as it is",
        ),
        NotSignedIn::NoRegistration => Failure::usage(
            error.to_string(),
            "register Bowline there by hand, with the redirect URI `http://127.0.0.1/callback`, and \
             write the `client_id` that you get into `[servers.NAME.oauth]`",
        ),
        error => anyhow::Error::new(error).into(),
    }
}

// === impl Named ===

impl Named {
    /// The server of this name, or at this URL. A URL of a configured server is that server.
    fn find(written: &str, config: &Config, arguments: &SignInArguments) -> Result<Self, Failure> {
        let found = match written.contains("://") {
            true => Self::at(written, config)?,
            false => Self::called(written, config, arguments)?,
        };
        if found.server.oauth.is_none() {
            return Err(Failure::usage(
                format!("the gateway signs nobody in at {}", found.name),
                format!("add `[servers.{}.oauth]` to the file", found.name),
            ));
        }
        Ok(found)
    }

    fn at(url: &str, config: &Config) -> Result<Self, Failure> {
        let unnamed = Server::from_url(url)
            .map_err(|problem| Failure::usage(problem.what(), problem.help()))?;
        let is_it = |server: &&Server| server.way.urls().first() == unnamed.way.urls().first();
        let configured = config.servers.values().find(is_it).cloned();
        let server = configured.unwrap_or(Server {
            oauth: Some(Default::default()),
            ..unnamed
        });
        Ok(Self {
            name: shown_url(url),
            server,
        })
    }

    fn called(name: &str, config: &Config, arguments: &SignInArguments) -> Result<Self, Failure> {
        let shown = name.escape_debug();
        let Some(file) = &arguments.config else {
            return Err(Failure::usage(
                format!("`{shown}` is not a URL, and there is no file that could name it"),
                "write the server's URL in full, or name the file with `-c`",
            ));
        };
        let mut servers = config.servers.iter();
        let found = servers.find(|(known, _)| known.as_ref() == name);
        let Some((_, server)) = found else {
            let names: Vec<&str> = config.servers.keys().map(AsRef::as_ref).collect();
            return Err(Failure::usage(
                format!("{} has no server `{shown}`", file.display()),
                format!("it has `{}`", names.join("`, `")),
            ));
        };
        Ok(Self {
            name: name.to_owned(),
            server: server.clone(),
        })
    }
}
