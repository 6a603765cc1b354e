//! Metrics of the server that belong to no controller alone, and where a scrape gets them from.

use std::fmt;
use std::sync::Arc;

use metahook_core::cache::budget::CacheFigures;
use metahook_core::controller_metrics::Metric;
use metahook_core::pacing::memory::MemoryFigures;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::telemetry::describe;
use crate::telemetry::open_watches::OpenWatches;
use crate::telemetry::standard::RequestCounts;

/// Metrics of the whole server. A part that the server does not have shows zeros.
#[derive(Clone)]
pub(super) struct ServerMetrics {
    pub(super) requests: RequestCounts,
    /// Modules compiled so far.
    pub(super) compilations: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(super) watches: OpenWatches,
    pub(super) memory: Arc<dyn Fn() -> MemoryFigures + Send + Sync>,
    pub(super) caches: Arc<dyn Fn() -> CacheFigures + Send + Sync>,
    /// Bytes of the traces that the server keeps, and their bound.
    pub(super) traces: Arc<dyn Fn() -> (usize, usize) + Send + Sync>,
    pub(super) election: Option<Leads>,
    /// Whether there are other servers with the same controllers.
    pub(super) others: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// The name of the Lease of a leader election, and whether this server leads.
type Leads = (Arc<str>, Arc<dyn Fn() -> bool + Send + Sync>);

impl ServerMetrics {
    pub(super) fn new(compilations: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            requests: RequestCounts::default(),
            compilations: Arc::new(compilations),
            watches: OpenWatches::default(),
            memory: Arc::new(MemoryFigures::default),
            caches: Arc::new(CacheFigures::default),
            traces: Arc::new(<(usize, usize)>::default),
            election: None,
            others: Arc::new(|| false),
        }
    }

    /// Encodes the metrics of the server. Those of requests and of the leader election have names of client-go, and are encoded apart.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (memory, caches, traces) = ((self.memory)(), (self.caches)(), (self.traces)());
        for (metric, value) in [
            (Metric::ModuleCompilations, (self.compilations)()),
            (Metric::MemoryWaits, memory.waits),
            (Metric::MemoryRefusals, memory.refusals),
        ] {
            ConstCounter::new(value).encode(describe(encoder, &metric.name(), metric)?)?;
        }
        for (metric, value) in [
            (Metric::OtherServers, u64::from((self.others)())),
            (Metric::Watches, self.watches.count()),
            (Metric::WatchesBroken, self.watches.broken()),
            (Metric::MemoryBudget, memory.budget),
            (Metric::MemoryReserved, memory.reserved),
            (Metric::MemoryReservedMax, memory.most_reserved),
            (Metric::TraceMemory, traces.0 as u64),
            (Metric::TraceMemoryMax, traces.1 as u64),
            (Metric::CacheBudget, caches.budget.unwrap_or_default()),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(describe(encoder, &metric.name(), metric)?)?;
        }
        let name = Metric::CacheBytes.name();
        let mut family = describe(encoder, &name, Metric::CacheBytes)?;
        for (kind, bytes) in &caches.held {
            let value = i64::try_from(*bytes).unwrap_or(i64::MAX);
            let labels = [(Metric::CacheBytes.label(), kind.as_str())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
