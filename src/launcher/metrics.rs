//! A launcher's metrics, in the OpenMetrics text format over plain HTTP: for a scraper on this machine, unless another
//! address is given. What there is to tell is noted when it is reported to the scheduler; a scrape asks no node for
//! anything.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use proto_frames::Uuid;
use proto_frames::payload::{InstanceStat, InstanceState, Stats};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::net::address::listen_address;
use crate::net::socket::accept;

/// Connections at once; further ones wait in the kernel. A scraper has one.
const MAX_CONNECTIONS: usize = 8;

/// How long a connection may take for a request's head, and in all: a scraper connects again.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// How long a connection may last in all; see [`HEAD_DEADLINE`].
const CONNECTION_DEADLINE: Duration = Duration::from_secs(60);

/// Bytes of a request's head; a longer one ends the connection.
const MAX_HEAD: usize = 16 * 1024;

/// Pause after accepting failed, as where there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The OpenMetrics text format.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the nodes of a launcher have reported. The run loops write, scrapes read; the lock is held for moments.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// A real launcher has one entry, a launcher of simulated nodes one for each.
    nodes: Mutex<BTreeMap<Uuid, NodeMetrics>>,
}

/// What one node reported last.
#[derive(Debug, Clone, Default)]
struct NodeMetrics {
    is_connected: bool,
    /// Connections since the start.
    connections: u64,
    /// `None` without a lease.
    lease_until: Option<Instant>,
    /// How many instances there are in each state, in the protocol's words.
    instances: BTreeMap<String, u64>,
    /// Of all instances together; unknown figures count as 0, here and below.
    mem_used_mib: u64,
    disk_used_mb: u64,
    /// Of one processor; instances on four busy ones have 400. STATS has rounded down for each instance.
    cpu_percent: u64,
    mem_total_mib: u64,
    mem_available_mib: u64,
}

impl Metrics {
    /// Notes that a node is connected, or is not any more.
    pub(super) fn connection(&self, node: Uuid, is_connected: bool) {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(node).or_default();
        node.is_connected = is_connected;
        node.connections += u64::from(is_connected);
    }

    /// Notes until when a node's instances under the lease may run.
    pub(super) fn lease(&self, node: Uuid, until: Option<Instant>) {
        self.nodes.lock().entry(node).or_default().lease_until = until;
    }

    /// Notes what a node tells the scheduler in its STATS.
    pub(super) fn report(&self, node: Uuid, stats: &Stats) {
        let known = |amount: i64| u64::try_from(amount).unwrap_or(0);
        let mut instances = BTreeMap::new();
        for it in &stats.instances {
            *instances.entry(it.state.as_str().to_owned()).or_default() += 1;
        }
        // STATS has the part of an instance's own vcpus that is used.
        let vcpus = |it: &InstanceStat| it.requested.as_ref().map_or(1, |it| it.vcpus.max(1));
        let all = || stats.instances.iter();
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(node).or_default();
        node.instances = instances;
        node.mem_used_mib = all().map(|it| known(it.memory_usage_mb)).sum();
        node.disk_used_mb = all().map(|it| known(it.disk_usage_mb)).sum();
        node.cpu_percent = all()
            .map(|it| known(it.cpu_usage.saturating_mul(vcpus(it))))
            .sum();
        node.mem_total_mib = known(stats.mem_total_mb);
        node.mem_available_mib = known(stats.mem_available_mb);
    }

    /// All metrics in the OpenMetrics text format.
    fn text(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        let nodes = self.nodes.lock().values().cloned().collect();
        registry.register_collector(Box::new(Gathered(nodes)));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// What one scrape tells: of several simulated nodes, the sums.
#[derive(Debug)]
struct Gathered(Vec<NodeMetrics>);

impl Gathered {
    /// Instances by state; every state that there is has its series.
    fn instances(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut states = encoder.encode_descriptor(
            "ciao_launcher_instances",
            "Instances on this node by state",
            None,
            MetricType::Gauge,
        )?;
        for state in InstanceState::KNOWN {
            let of = |node: &NodeMetrics| node.instances.get(*state).copied().unwrap_or(0);
            let count: u64 = self.0.iter().map(of).sum();
            let labels = [("state", *state)];
            ConstGauge::new(count as f64).encode(states.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        const MIB: f64 = 1_048_576.0;
        let now = Instant::now();
        let sum = |of: fn(&NodeMetrics) -> u64| self.0.iter().map(of).sum::<u64>();
        let amount = |of: fn(&NodeMetrics) -> u64| sum(of) as f64;
        self.instances(&mut encoder)?;
        let leases = self.0.iter().filter_map(|node| node.lease_until);
        let lease = leases
            .min()
            .map(|until| until.saturating_duration_since(now));
        let connected = amount(|node| u64::from(node.is_connected));
        let gauges = [
            (
                "connected",
                "Nodes of this launcher that are connected to a scheduler",
                connected,
            ),
            ("nodes", "Nodes of this launcher", self.0.len() as f64),
            (
                "lease_left_seconds",
                "Until instances under the lease are ended unless it is renewed; 0 without one",
                lease.unwrap_or_default().as_secs_f64(),
            ),
            (
                "instances_memory_bytes",
                "Memory that instances use",
                amount(|node| node.mem_used_mib) * MIB,
            ),
            (
                "instances_disk_bytes",
                "Disk that instances use",
                amount(|node| node.disk_used_mb) * 1e6,
            ),
            (
                "instances_cpu_ratio",
                "Processors that instances use",
                amount(|node| node.cpu_percent) / 100.0,
            ),
            (
                "memory_bytes",
                "Memory that the node has",
                amount(|node| node.mem_total_mib) * MIB,
            ),
            (
                "memory_available_bytes",
                "Memory that the node has free",
                amount(|node| node.mem_available_mib) * MIB,
            ),
        ];
        for (name, help, value) in gauges {
            let name = format!("ciao_launcher_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        let counter = ConstCounter::new(sum(|node| node.connections.saturating_sub(1)));
        counter.encode(encoder.encode_descriptor(
            "ciao_launcher_reconnects",
            "Connections to a scheduler beyond the first of each node",
            None,
            MetricType::Counter,
        )?)
    }
}

/// Serves metrics until the future is dropped, which ends all connections too.
pub(super) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> Infallible {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let place = Arc::clone(&places).acquire_owned().await;
        let (stream, from) = match accept(&listener).await {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a scraper's connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let metrics = Arc::clone(&metrics);
        connections.spawn(async move {
            let answer = service_fn(|request| {
                let answer = answer(&request, &metrics);
                async { Ok::<_, Infallible>(answer) }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_DEADLINE)
                .max_buf_size(MAX_HEAD)
                .serve_connection(TokioIo::new(stream), answer);
            if let Ok(Err(error)) = timeout(CONNECTION_DEADLINE, serving).await {
                debug!(%from, %error, "a scraper's connection ended");
            }
            drop(place);
        });
    }
}

/// Answers GET and HEAD of `/metrics`; 404 for other paths, 405 for other methods.
fn answer(request: &Request<Incoming>, metrics: &Arc<Metrics>) -> Response<Full<Bytes>> {
    let say = |status: StatusCode, kind: &'static str, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match metrics.text() {
            Ok(text) => say(StatusCode::OK, MEDIA_TYPE, text),
            Err(_) => {
                let text = "the metrics cannot be written\n".to_owned();
                say(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, text)
            }
        },
        (_, "/metrics") => {
            let text = "only GET is taken\n".to_owned();
            say(StatusCode::METHOD_NOT_ALLOWED, PLAIN, text)
        }
        _ => {
            let text = "there is nothing here but /metrics\n".to_owned();
            say(StatusCode::NOT_FOUND, PLAIN, text)
        }
    }
}

/// Reads where to serve metrics: `ADDRESS:PORT`, or a port alone, which is one of loopback.
///
/// # Errors
/// It is neither; in words.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(([127, 0, 0, 1], port).into());
    }
    // Without a port: which one?
    match listen_address(text, 0) {
        Ok(address) if address.port() != 0 || text.ends_with(":0") => Ok(address),
        _ => Err("write it as ADDRESS:PORT, or PORT for one on 127.0.0.1".to_owned()),
    }
}

#[cfg(test)]
mod tests;
