//! What the start page of a managed flow needs: the flow behind a link, and the one browser it belongs to.

use super::flow::{AwaitedInput, Flow, FlowId};
use super::flow_store::FlowStoreError;
use super::flows::Flows;
use super::secret::Secret;
use bowline_system::clock;

impl Flows {
    /// The open managed flow with this id, for its start page.
    pub(crate) async fn managed_flow(&self, id: &FlowId) -> Result<Option<Flow>, FlowStoreError> {
        let flow = self.flow_store.flow(id).await?;
        let is_one = |flow: &Flow| flow.is_managed() && flow.is_open(clock::unix_seconds());
        match flow.filter(is_one) {
            Some(flow) if self.is_under_way(&flow).await? => Ok(Some(flow)),
            _ => Ok(None),
        }
    }

    /// Binds a flow to the first browser that continues from its start page, which keeps this secret.
    /// `false`: a browser has continued before, be it this one. Whoever copied its cookie, as programs on
    /// other ports of the same host can, must not get the state too.
    pub(crate) async fn bind_browser(
        &self,
        id: &FlowId,
        secret: &Secret,
    ) -> Result<bool, FlowStoreError> {
        let flow = self.flow_store.change(id, |flow| {
            let is_managed = flow.is_managed();
            match &mut flow.awaited {
                AwaitedInput::Authorization(authorization)
                    if is_managed && authorization.browser.is_none() =>
                {
                    authorization.browser = Some(secret.clone());
                    true
                }
                _ => false,
            }
        });
        Ok(flow.await?.is_some())
    }
}
