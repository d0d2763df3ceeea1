//! What happens to gateways that are several, besides deaths: they are stopped, or cut off from their peers or the
//! Redis, for a moment or for longer than their presence lasts.

use std::time::Duration;

use bowline_testbed::cable::Way;
use bowline_testbed::redis::Fitness;
use tokio::time::{Instant, sleep, sleep_until};

use super::Storm;
use super::plan::{GatewayStrike, Planner, Siege};
use crate::trouble::Trouble;

impl Storm<'_> {
    /// A gateway bears something for a moment.
    pub(super) async fn strike_gateway(
        &self,
        strike: &GatewayStrike,
        begin: Instant,
    ) -> anyhow::Result<()> {
        sleep_until(begin + strike.spell.after).await;
        self.besiege(&strike.siege, strike.spell.lasts).await?;
        sleep(strike.spell.lasts).await;
        self.relieve(strike.siege.gateway).await
    }

    /// Begins what a gateway has to bear for so long.
    pub(super) async fn besiege(&self, siege: &Siege, time: Duration) -> anyhow::Result<()> {
        let gateway = &self.gateways.all()[siege.gateway];
        let (way, how) = match siege.is_silent {
            true => (Way::Silent, "is silent"),
            false => (Way::Cut, "is cut"),
        };
        let (kind, text) = match siege.trouble {
            Trouble::CutPeers => (
                "cut peers",
                format!("the way from its peers {how} for {time:?}"),
            ),
            Trouble::CutRedis => (
                "cut redis",
                format!("the way to the Redis {how} for {time:?}"),
            ),
            Trouble::RedisFull => ("redis full", format!("full for {time:?}")),
            Trouble::RedisReadOnly => ("redis read-only", format!("read-only for {time:?}")),
            _ => ("stop gateway", format!("stopped for {time:?}")),
        };
        let whose = match Trouble::OF_REDIS.contains(&siege.trouble) {
            true => "redis".to_owned(),
            false => format!("g{}", siege.gateway),
        };
        gateway.begin_trial();
        self.recorder.fault(whose, kind, text, time);
        match siege.trouble {
            Trouble::CutPeers => self.gateways.set_peers(siege.gateway, way),
            Trouble::CutRedis => self.gateways.set_redis(siege.gateway, way),
            Trouble::RedisFull => self.gateways.set_fitness(Fitness::Full).await?,
            Trouble::RedisReadOnly => self.gateways.set_fitness(Fitness::ReadOnly).await?,
            _ => gateway.pause().await?,
        }
        Ok(())
    }

    /// Ends what is not planned to go on in the next round.
    pub(super) async fn lift(&self, planner: &Planner) -> anyhow::Result<()> {
        if planner.siege().is_none() {
            self.gateways.set_fitness(Fitness::Fit).await?;
        }
        let goes_on = planner.siege().map(|siege| siege.gateway);
        let all = 0..self.gateways.all().len();
        for gateway in all.filter(|gateway| Some(*gateway) != goes_on) {
            self.relieve(gateway).await?;
        }
        Ok(())
    }

    /// Ends all of it.
    pub(super) async fn lift_all(&self) -> anyhow::Result<()> {
        self.gateways.set_fitness(Fitness::Fit).await?;
        for gateway in 0..self.gateways.all().len() {
            self.relieve(gateway).await?;
        }
        Ok(())
    }

    async fn relieve(&self, gateway: usize) -> anyhow::Result<()> {
        self.gateways.set_peers(gateway, Way::Open);
        self.gateways.set_redis(gateway, Way::Open);
        let gateway = &self.gateways.all()[gateway];
        if gateway.is_stopped() {
            gateway.resume().await?;
        }
        Ok(())
    }
}
