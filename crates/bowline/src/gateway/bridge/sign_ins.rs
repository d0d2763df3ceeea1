//! The sign-ins of a bridge: each is shown in a browser once, and by one process of this machine only. The others
//! wait for what that one brings.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::OpenBrowser;
use crate::exchange::recovery::{Cause, recover_in_background};
use crate::front::callback::{Callback, Started};
use crate::hub::Hub;
use crate::oauth::{Flow, FlowOutcome};
use crate::upstream::Carried;

/// How often the vault is read while a person signs in: another process may be faster.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows the sign-ins that are started, for as long as the bridge runs.
pub(super) fn present(
    hub: &Arc<Hub>,
    mut started: UnboundedReceiver<Started>,
    browser: Option<OpenBrowser>,
) {
    let own = Arc::clone(hub);
    let browser = browser.map(Arc::new);
    let presenting = async move {
        while let Some(Started { flow, callback }) = started.recv().await {
            let presentation = Presentation {
                hub: Arc::clone(&own),
                callback,
                browser: browser.clone(),
            };
            let sign_in = own.drain.until_closed(presentation.run(flow));
            own.tracker.spawn(sign_in);
        }
    };
    hub.tracker.spawn(hub.drain.until_closed(presenting));
}

/// A sign-in while it is shown.
struct Presentation {
    hub: Arc<Hub>,
    callback: Callback,
    browser: Option<Arc<OpenBrowser>>,
}

impl Presentation {
    /// Shows a flow, and those that replace it, until one ends.
    async fn run(self, mut flow: Flow) {
        let flows = &self.hub.flows;
        loop {
            self.callback.expect(flows, &flow);
            let end = tokio::select! {
                biased;
                end = flows.wait(&flow) => end,
                never = self.show(&flow) => match never {},
            };
            let next = flows.current_flow(&flow.caller, &flow.server_url).await;
            match (end, next) {
                (None, Ok(Some(next))) if next.kind == flow.kind => flow = next,
                (end, _) => {
                    self.callback.close().await;
                    if end == Some(FlowOutcome::SignedIn) {
                        self.continue_sessions();
                    }
                    return;
                }
            }
        }
    }

    /// Opens the browser when no other process has one open for this account, and looks for what others bring.
    async fn show(&self, flow: &Flow) -> std::convert::Infallible {
        let flows = &self.hub.flows;
        let link = flow.loopback().and_then(|it| it.start_url.as_deref());
        let server = &flow.server;
        let opening = async {
            let claim = flows.claim_browser(flow).await;
            if let Err(error) = &claim {
                let error: &dyn std::error::Error = error;
                tracing::debug!(error, %server, "not known whether another process signs in");
            }
            // The last holder of the claim may have signed in.
            let is_signed_in = flows.end_if_signed_in(flow).await.unwrap_or(false);
            if let (false, Some(link), Some(_)) = (is_signed_in, link, flow.authorization()) {
                let is_opened = self.browser.as_ref().is_some_and(|open| open(link));
                tracing::warn!(%server, link, is_opened, "sign in with this link in a browser on this machine");
            }
            // Held until the flow ends.
            std::future::pending::<()>().await;
            drop(claim);
        };
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                flows.end_if_signed_in(flow).await.ok();
            }
        };
        tokio::join!(opening, looking).1
    }

    /// Opens what waits for the sign-in, so that the client learns that its lists have changed.
    fn continue_sessions(&self) {
        for session in self.hub.registry.table.all() {
            let leg = session.leg();
            if leg.is_lost() {
                recover_in_background(&session, &leg, Cause::Lost, &Carried::default());
            }
        }
    }
}
