//! `bowline serve`: starts the gateway, greets, and waits to be told to stop.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use bowline::Gateway;
use bowline::config::ServerName;

use crate::demo::Demo;
use crate::greeting::Greeting;
use crate::plan::Plan;
use crate::signals::Signals;

/// Serves until told to stop; the code says whether stopping was let finish.
pub(crate) async fn serve(plan: Plan) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let Plan { mut config, demo } = plan;
    // It ends when this is dropped, after the gateway in front of it.
    let demo = if demo {
        let demo = Demo::start().await.context("cannot start the demo")?;
        config.servers.insert(Demo::name()?, demo.server()?);
        Some(demo)
    } else {
        None
    };
    let names: Vec<ServerName> = config.servers.keys().cloned().collect();
    let gateway = Gateway::start(config).await?;
    greet(&Greeting {
        listen: gateway.listen(),
        admin: gateway.admin(),
        servers: &names,
        demo: demo.is_some(),
    });

    signals.next().await;
    tracing::info!("stopping; a second signal ends at once");
    Ok(tokio::select! {
        () = gateway.stop() => ExitCode::SUCCESS,
        () = signals.next() => ExitCode::FAILURE,
    })
}

/// Whoever reads stdout may have left; clients are served all the same.
fn greet(greeting: &Greeting<'_>) {
    let mut stdout = anstream::stdout().lock();
    let written = write!(stdout, "{greeting}").and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "nobody reads the greeting");
    }
}
