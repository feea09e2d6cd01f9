//! `pagesieve run` and `pagesieve healthcheck`.

use crate::admin::{self, Health};
use crate::config::{self, Config, LogFormat};
use crate::daemon::{self, Surroundings};
use crate::index::plan::Plan;
use crate::logging;
use crate::memory::{self, ProcessPlan};
use crate::metrics::Metrics;
use crate::page::TEXT_VERSION;
use crate::sketch::Shape;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Without a sign of life from the main loop for this long, `/livez` fails.
const BEAT_LIMIT: Duration = Duration::from_secs(60);

/// On top of `drain_timeout`, for closing clients.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Forget the window that the state topic holds, as a change of key or sketch needs
    #[arg(long)]
    new_window: bool,
}

/// Options of `healthcheck`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// Admin address of the daemon
    #[arg(default_value = "127.0.0.1:9464")]
    address: SocketAddr,
    /// Ask whether it is ready, not only alive
    #[arg(long)]
    ready: bool,
}

/// Runs the daemon until a signal.
pub fn run(args: &Args) -> Result<()> {
    let config = config::load(Some(&args.config), config::environment())?;
    config.check_for_run()?;
    let index = Plan::new(&config.window, &Shape::new(&config.sketch));
    memory::check_config(&ProcessPlan::new(&config, &index), memory::cgroup_limit(Path::new("/")))?;
    let format = match config.log.format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    };
    logging::start(format, "info,librdkafka=warn,rdkafka=warn");
    let key = config.sketch.key.context("a key is required")?;
    let surroundings = Surroundings {
        metrics: Arc::new(Metrics::new(&TEXT_VERSION.to_string())),
        health: Arc::new(Health::new(BEAT_LIMIT)),
        stop: Arc::new(AtomicBool::new(false)),
        new_window: args.new_window,
    };
    let admin = config.admin.listen.map(|listen| {
        admin::serve(listen, surroundings.metrics.clone(), surroundings.health.clone())
            .with_context(|| format!("cannot listen on {listen} (admin.listen)"))
    });
    let admin = admin.transpose()?;
    let listening = admin.as_ref().map(|server| server.local_addr().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = config.hash(),
        key = key.id(),
        admin = listening.as_deref().unwrap_or("off"),
        "starting"
    );
    stop_on_signal(&config, surroundings.stop.clone())?;
    let result = daemon::run(&config, &key, &surroundings);
    if let Err(error) = &result {
        tracing::error!("{error:#}");
    }
    drop(admin);
    // Closing a client of librdkafka can hang; everything that matters has been committed or not by now.
    std::process::exit(i32::from(result.is_err()));
}

/// SIGTERM and SIGINT drain; a second one, or a drain that takes too long, ends the process.
fn stop_on_signal(config: &Config, stop: Arc<AtomicBool>) -> Result<()> {
    let limit = config.pipeline.drain_timeout + CLOSE_WITHIN;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = async move {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            tracing::error!("cannot listen for signals");
            return;
        };
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!(limit_seconds = limit.as_secs(), "draining");
        stop.store(true, Ordering::Relaxed);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = tokio::time::sleep(limit) => {}
        }
        tracing::error!("not drained in time: what was not committed will be read again");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(signals))?;
    Ok(())
}

/// Asks a daemon's probe; exits 0 only if it says yes.
pub fn healthcheck(args: &HealthArgs) -> Result<()> {
    let timeout = Duration::from_secs(3);
    let path = if args.ready { "/readyz" } else { "/livez" };
    let mut stream = TcpStream::connect_timeout(&args.address, timeout)
        .with_context(|| format!("no answer from {}", args.address))?;
    stream.set_read_timeout(Some(timeout))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", args.address)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim();
    if answer.starts_with("HTTP/1.1 200") {
        println!("{body}");
        return Ok(());
    }
    bail!("{path} says no: {body}")
}
