//! `bowline serve`: starts the gateway, prints the greeting, and waits for signals and changes of the file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Gateway;
use bowline::config::{Config, ServerCertificate, ServerName};

use crate::args::ConfigArguments;
use crate::demo::Demo;
use crate::environment;
use crate::failure::{self, Failure};
use crate::greeting::Greeting;
use crate::plan::Plan;
use crate::signals::{SignalRequest, Signals};
use crate::watch::Watch;

/// Serves until a signal stops it; the exit code says whether the stop was complete.
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
    let unions: Vec<ServerName> = config.unions.keys().cloned().collect();
    let store = config.store.kind.clone();
    if config.store.lacks_state_directory {
        tracing::warn!(
            "sessions are kept in memory only, because neither XDG_STATE_HOME nor HOME is set: set `path` in \
             `[store]` to store them, or `kind = \"memory\"` to confirm it"
        );
    }
    let mut certificate = CertificateWatch::new(config.tls.as_ref());
    let scheme = config.scheme();
    let gateway = start(config).await?;
    greet(&Greeting {
        listen: gateway.listen(),
        scheme,
        admin: gateway.admin(),
        servers: &names,
        unions: &unions,
        store: &store,
        demo: demo.is_some(),
    });
    // It may have changed after it was read and before it was watched.
    reload_certificate(&gateway);

    loop {
        tokio::select! {
            request = signals.next() => match request {
                SignalRequest::Stop => break,
                SignalRequest::Reload => reload(&gateway, arguments, demo.as_ref()),
            },
            () = changed(watch.as_mut()) => reload(&gateway, arguments, demo.as_ref()),
            () = certificate.changed() => reload_certificate(&gateway),
        }
        certificate.follow(&gateway);
    }
    tracing::info!("stopping; a second signal stops at once");
    Ok(tokio::select! {
        () = gateway.stop() => ExitCode::SUCCESS,
        () = signals.stop() => ExitCode::FAILURE,
    })
}

/// Starts the gateway. Planted bugs need a build that has them.
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
        Ok(()) => tracing::info!("configuration reloaded"),
        Err(failure) => log(&failure),
    }
}

/// Takes over the certificate of the listener as its files are now, if they can be used.
fn reload_certificate(gateway: &Gateway) {
    if let Err(error) = gateway.reload_certificate() {
        let help = error.help();
        tracing::error!(%error, help, "the new certificate was rejected; the old one stays in use");
    }
}

fn log(failure: &Failure) {
    let problems = failure.render(false);
    let problems = problems.trim_end();
    tracing::error!("the new configuration was rejected; the old one stays in use\n{problems}");
}

/// The configuration with the demo server, if it runs.
fn with_demo(mut config: Config, demo: Option<&Demo>) -> anyhow::Result<Config> {
    if let Some(demo) = demo {
        config.servers.insert(Demo::name()?, demo.server()?);
    }
    Ok(config)
}

/// The watch, or a warning why there is none; SIGHUP works without one.
fn working(watch: notify::Result<Watch>) -> Option<Watch> {
    let report = |error: &notify::Error| {
        tracing::warn!(%error, "cannot watch files for changes; send SIGHUP after a change");
    };
    watch.inspect_err(report).ok()
}

/// The watch of the listener's certificate and its key, if there is one.
#[derive(Debug, Default)]
struct CertificateWatch {
    files: Option<[PathBuf; 2]>,
    watch: Option<Watch>,
}

impl CertificateWatch {
    fn new(certificate: Option<&ServerCertificate>) -> Self {
        let Some(certificate) = certificate else {
            return Self::default();
        };
        let files = [certificate.cert(), certificate.key()];
        Self {
            watch: working(Watch::new(&files)),
            files: Some(files.map(Path::to_owned)),
        }
    }

    /// Watches other files, if a reload has named others.
    fn follow(&mut self, gateway: &Gateway) {
        let certificate = gateway.certificate();
        let files = certificate.as_ref().map(|it| [it.cert(), it.key()]);
        let files = files.map(|files| files.map(Path::to_owned));
        if files != self.files {
            *self = Self::new(certificate.as_ref());
            // What changed before the watch began is not noticed by it.
            reload_certificate(gateway);
        }
    }

    async fn changed(&mut self) {
        changed(self.watch.as_mut()).await;
    }
}

async fn changed(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Prints the greeting. If stdout is closed, clients are served all the same.
fn greet(greeting: &Greeting<'_>) {
    let stdout = anstream::stdout().lock();
    if let Err(error) = failure::show(stdout, &greeting.to_string()) {
        tracing::debug!(%error, "cannot write the greeting");
    }
}
