//! `bowline serve`: starts the gateway, greets, and waits to be told to stop or to change.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Gateway;
use bowline::config::{Config, ServerName};

use crate::args::ConfigArguments;
use crate::demo::Demo;
use crate::environment;
use crate::failure::Failure;
use crate::greeting::Greeting;
use crate::plan::Plan;
use crate::signals::{Signals, Told};
use crate::watch::Watch;

/// Serves until told to stop; the code says whether stopping was let finish.
///
/// `watch` watches the file that `arguments` name, if they do.
pub(crate) async fn serve(
    plan: Plan,
    arguments: &ConfigArguments,
    watch: Option<notify::Result<Watch>>,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let mut watch = watch.and_then(working);
    // It ends when this is dropped, after the gateway in front of it.
    let demo = if plan.demo {
        Some(Demo::start().await.context("cannot start the demo")?)
    } else {
        None
    };
    let config = with_demo(plan.config, demo.as_ref())?;
    let names: Vec<ServerName> = config.servers.keys().cloned().collect();
    let store = config.store.kind.clone();
    if config.store.lacks_state_directory {
        tracing::warn!(
            "sessions are only in memory, because neither XDG_STATE_HOME nor HOME is set: write \
             `path` in `[store]` to keep them, or `kind = \"memory\"` if that is meant"
        );
    }
    let gateway = start(config).await?;
    greet(&Greeting {
        listen: gateway.listen(),
        admin: gateway.admin(),
        servers: &names,
        store: &store,
        demo: demo.is_some(),
    });

    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::Stop => break,
                Told::Reload => reload(&gateway, arguments, demo.as_ref()),
            },
            () = changed(watch.as_mut()) => reload(&gateway, arguments, demo.as_ref()),
        }
    }
    tracing::info!("stopping; a second signal ends at once");
    Ok(tokio::select! {
        () = gateway.stop() => ExitCode::SUCCESS,
        () = signals.stop() => ExitCode::FAILURE,
    })
}

/// A promise is broken on purpose only where that was built in; elsewhere, wanting it is a mistake.
async fn start(config: Config) -> anyhow::Result<Gateway> {
    if let Some(name) = environment::variable("BOWLINE_PLANTED") {
        #[cfg(feature = "planted")]
        bowline::planted::plant(&name)?;
        #[cfg(not(feature = "planted"))]
        anyhow::bail!("BOWLINE_PLANTED is `{name}`, but this was built without planted bugs");
    }
    Ok(Gateway::start(config).await?)
}

/// Reads the configuration as at the start, and hands it to the gateway if nothing is wrong.
fn reload(gateway: &Gateway, arguments: &ConfigArguments, demo: Option<&Demo>) {
    let reloaded = Plan::new(arguments, &environment::variable).and_then(|plan| {
        let config = with_demo(plan.config, demo)?;
        gateway.reload(config).map_err(anyhow::Error::new)?;
        Ok(())
    });
    match reloaded {
        Ok(()) => tracing::info!("the configuration was read again"),
        Err(failure) => log(&failure),
    }
}

fn log(failure: &Failure) {
    let problems = failure.render(false);
    let problems = problems.trim_end();
    tracing::error!("the new configuration cannot be used, the old one stays\n{problems}");
}

/// The demo has its place beside the servers that were named, which are none.
fn with_demo(mut config: Config, demo: Option<&Demo>) -> anyhow::Result<Config> {
    if let Some(demo) = demo {
        config.servers.insert(Demo::name()?, demo.server()?);
    }
    Ok(config)
}

/// The watch, or a word about why there is none; without one, a signal still works.
fn working(watch: notify::Result<Watch>) -> Option<Watch> {
    let report = |error: &notify::Error| {
        tracing::warn!(%error, "changes of the configuration file go unnoticed; send SIGHUP");
    };
    watch.inspect_err(report).ok()
}

async fn changed(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Whoever reads stdout may have left; clients are served all the same.
fn greet(greeting: &Greeting<'_>) {
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{greeting}").and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "nobody reads the greeting");
    }
}
