//! The admin port: `/metrics`, `/livez`, `/readyz`, `/api/v1/version`.
//!
//! It runs on a small runtime in a thread of its own, so that it answers while the main loop restores, drains or hangs,
//! and tells which: the loop reports into [`Health`], the handlers only read it. All handlers answer at once from memory;
//! what can take long is a client, so connections are few and their life is short.

mod connection;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::metrics::Metrics;
use connection::Bounded;

/// The text format and the version of it that `Metrics::render` writes.
const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What clients may take.
#[derive(Clone, Copy)]
struct Limits {
    /// Connections at once; further ones wait in the listener's backlog.
    num_connections: usize,
    /// From accept to close, whatever happens in between: the request time-out, and the end of an idle connection.
    connection_life: Duration,
    /// How long `stop` waits for answers under way.
    drain: Duration,
}

impl Limits {
    /// A few scrapers and probes need a handful; a scrape takes milliseconds. A scraper that keeps its connection open
    /// between scrapes makes a new one when it finds the old one closed.
    const DEFAULT: Self =
        Self { num_connections: 64, connection_life: Duration::from_secs(30), drain: Duration::from_secs(2) };
}

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Not yet connected.
    Starting,
    /// The window is being read back: alive however long it takes.
    Restoring,
    /// Restored, not (or no longer) a member of the group.
    Joining,
    /// Judging, or idle for want of partitions.
    Ready,
    /// Finishing what is in flight; never ready again.
    Draining,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Starting, Self::Restoring, Self::Joining, Self::Ready, Self::Draining];

    /// The name `/readyz` gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Restoring => "restoring",
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// What the main loop reports and the probes read. No locks: a report costs the loop one store.
pub struct Health {
    /// Zero of `last_beat_ms`.
    origin: Instant,
    /// The last sign of life of the main loop, in milliseconds after `origin`.
    last_beat_ms: AtomicU64,
    /// A beat this old means the loop hangs.
    beat_limit: Duration,
    /// A `Stage` as its number.
    stage: AtomicU8,
    /// Estimate for `Stage::Restoring`, or `UNKNOWN`.
    remaining_seconds: AtomicU64,
}

/// No estimate of the remaining time.
const UNKNOWN: u64 = u64::MAX;

impl Health {
    /// A process that starts now and is alive while its last beat is younger than `beat_limit` (60 s is a good one: well
    /// above any call that blocks the loop in normal times).
    pub fn new(beat_limit: Duration) -> Self {
        Self {
            origin: Instant::now(),
            last_beat_ms: AtomicU64::new(0),
            beat_limit,
            stage: AtomicU8::new(Stage::Starting as u8),
            remaining_seconds: AtomicU64::new(UNKNOWN),
        }
    }

    /// The main loop has turned.
    pub fn beat(&self) {
        self.last_beat_ms.store(self.origin.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Entering a stage is a beat too: after a long restore the loop gets a whole limit for its first turn. From
    /// `Draining` there is no way back, so a late report of another thread cannot draw traffic to a process that leaves.
    pub fn set_stage(&self, stage: Stage) {
        self.beat();
        let unless_draining = |now| (now != Stage::Draining as u8).then_some(stage as u8);
        let _draining = self.stage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unless_draining);
    }

    /// Restored and a member of the group (`true`), or waiting to join again (`false`).
    pub fn set_ready(&self, ready: bool) {
        self.set_stage(if ready { Stage::Ready } else { Stage::Joining });
    }

    /// The window is being restored; `None` while the remaining time cannot be estimated. Ends with the next
    /// `set_ready` or `set_stage`.
    pub fn set_restoring(&self, remaining: Option<Duration>) {
        self.remaining_seconds.store(remaining.map_or(UNKNOWN, |it| it.as_secs()), Ordering::Relaxed);
        self.set_stage(Stage::Restoring);
    }

    /// Where the process is in its life.
    pub fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    /// The remaining time of a restore under way, if it is known.
    pub fn remaining(&self) -> Option<Duration> {
        let seconds = self.remaining_seconds.load(Ordering::Relaxed);
        (self.stage() == Stage::Restoring && seconds != UNKNOWN).then(|| Duration::from_secs(seconds))
    }

    /// How long ago the main loop last turned.
    pub fn beat_age(&self) -> Duration {
        let last_beat = Duration::from_millis(self.last_beat_ms.load(Ordering::Relaxed));
        self.origin.elapsed().saturating_sub(last_beat)
    }

    /// Whether the loop turns. A restore counts as turning: killing it would only start it over.
    pub fn is_alive(&self) -> bool {
        self.stage() == Stage::Restoring || self.beat_age() < self.beat_limit
    }
}

/// The running admin port; stops when dropped.
pub struct AdminServer {
    local_addr: SocketAddr,
    /// Taken by the first stop.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl AdminServer {
    /// Where it listens: the port chosen by the system if `listen` had port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Takes no new connections, waits a little for answers under way, and ends the thread. So does dropping it.
    pub fn stop(self) {}
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        let Some((stop_tx, thread)) = self.running.take() else {
            return;
        };
        let _thread_has_ended = stop_tx.send(());
        if thread.join().is_err() {
            tracing::error!("the admin port's thread panicked");
        }
    }
}

/// Binds `listen` and serves it in a thread. It is bound on return, so a port in use is an error of the start.
pub fn serve(listen: SocketAddr, metrics: Arc<Metrics>, health: Arc<Health>) -> io::Result<AdminServer> {
    serve_within(Limits::DEFAULT, listen, metrics, health)
}

fn serve_within(
    limits: Limits,
    listen: SocketAddr,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
) -> io::Result<AdminServer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind(listen))?;
    let local_addr = listener.local_addr()?;
    let (stop_tx, stop_rx) = oneshot::channel();
    let (drain_tx, drain_rx) = oneshot::channel();

    let stopped = async move {
        let _stopped_or_dropped = stop_rx.await;
        let _ = drain_tx.send(());
    };
    let serving =
        axum::serve(Bounded::new(listener, limits.num_connections, limits.connection_life), routes(metrics, health))
            .with_graceful_shutdown(stopped);
    let drain_deadline = async move {
        let _stopped_or_dropped = drain_rx.await;
        tokio::time::sleep(limits.drain).await;
    };

    let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = serving => {}
                () = drain_deadline => tracing::debug!("admin connections were cut at the end of the drain"),
            }
        });
    })?;
    Ok(AdminServer { local_addr, running: Some((stop_tx, thread)) })
}

type Shared = State<(Arc<Metrics>, Arc<Health>)>;

fn routes(metrics: Arc<Metrics>, health: Arc<Health>) -> Router {
    Router::new()
        .route("/metrics", get(render_metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/api/v1/version", get(version))
        .with_state((metrics, health))
}

async fn render_metrics(State((metrics, _)): Shared) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn livez(State((_, health)): Shared) -> impl IntoResponse {
    let alive = health.is_alive();
    let body =
        json!({ "alive": alive, "state": health.stage().name(), "last_beat_seconds": health.beat_age().as_secs() });
    (status(alive), Json(body))
}

async fn readyz(State((_, health)): Shared) -> impl IntoResponse {
    let stage = health.stage();
    let ready = stage == Stage::Ready;
    let mut body = json!({ "ready": ready, "state": stage.name() });
    if stage == Stage::Restoring {
        body["remaining_seconds"] = json!(health.remaining().map(|it| it.as_secs()));
    }
    (status(ready), Json(body))
}

async fn version() -> impl IntoResponse {
    Json(json!({ "name": "pagesieve", "version": env!("CARGO_PKG_VERSION") }))
}

fn status(fine: bool) -> StatusCode {
    if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
