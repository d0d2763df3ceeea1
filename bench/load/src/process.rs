//! What processes cost, from `/proc`.

use std::fs;

use anyhow::Context as _;

/// Linux tells CPU time in this unit on every machine (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// The processes of one proxy: for nginx, the master and its workers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Processes {
    /// Measure these processes, children not included
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

impl Processes {
    /// CPU time of all threads so far, in microseconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<u64> {
        self.pids.iter().map(|pid| cpu_of(*pid)).sum()
    }

    /// Resident memory in KiB.
    pub(crate) fn rss(&self) -> anyhow::Result<u64> {
        self.pids.iter().map(|pid| rss_of(*pid)).sum()
    }

    /// Costs per one of `count`, or nothing where nothing is measured.
    pub(crate) fn share(&self, cost: u64, count: u64) -> Option<f64> {
        let divisible = !self.pids.is_empty() && count > 0;
        divisible.then(|| cost as f64 / count as f64)
    }
}

fn cpu_of(pid: u32) -> anyhow::Result<u64> {
    let stat = read(pid, "stat")?;
    // The command's name may hold anything, but nothing behind its closing bracket does.
    let (_, fields) = stat.rsplit_once(") ").context("odd stat")?;
    let mut fields = fields.split(' ').skip(11).map(str::parse::<u64>);
    let mut next = || fields.next().context("short stat")?.context("odd stat");
    let ticks = next()? + next()?;
    Ok(ticks * (1_000_000 / TICKS_PER_SECOND))
}

fn rss_of(pid: u32) -> anyhow::Result<u64> {
    let status = read(pid, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.context("no VmRSS")?.parse().context("odd VmRSS")
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}"))
        .with_context(|| format!("the process {pid} is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        let own = Processes {
            pids: vec![std::process::id()],
        };
        assert!(own.rss().unwrap() > 0);
        own.cpu().unwrap();
        assert_eq!(own.share(10, 4), Some(2.5));
        assert_eq!(Processes::default().share(10, 4), None);
    }
}
