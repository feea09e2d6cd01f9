//! The life of `pagesieve run`: connect, restore, join, fly, recover, drain.
//!
//! ```text
//! connect ▸ fence ▸ restore ▸ join ─▶ fly ──stop──▶ drained
//!                                      ▲ │ fault
//!                                      │ ▼
//!                        rewind ◀ settle the judge ◀ settle the transaction
//! ```

use crate::admin::{Health, Stage};
use crate::batch::Limits;
use crate::config::{Config, Key, OnGap};
use crate::index::judge::{Judge, Rules};
use crate::index::plan::Plan;
use crate::memory::BATCH_BYTES;
use crate::metrics::Metrics;
use crate::page::decode::Decoder;
use crate::pipeline::sketch_stage::SketchStage;
use crate::pipeline::{self};
use crate::sketch::{Shape, Sketcher};
use crate::state::SketchId;
use crate::state::snapshot::Directory;
use crate::transport::Fault;
use crate::transport::kafka::Partitions;
use crate::transport::kafka::client;
use crate::transport::kafka::connect::{self, Cluster};
use crate::transport::kafka::keeper::Keeper;
use crate::transport::kafka::member::Consuming;
use crate::transport::kafka::producer::Producing;
use crate::transport::kafka::protocol::{Member, Publisher};
use crate::transport::kafka::restore::{self, Foreign, Restored, Watch};
use crate::transport::kafka::sink::{KafkaSink, Parts};
use crate::transport::kafka::source::KafkaSource;
use crate::transport::kafka::transaction::Settled;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Waiting time after a fault: doubled with each that follows without a good minute between.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const GOOD_FLIGHT: Duration = Duration::from_secs(60);

/// A call has time limits of its own, of ten seconds; one that takes so much longer will never return.
const LONGEST_CALL: Duration = Duration::from_secs(45);

/// `EX_TEMPFAIL` of sysexits.h: start it again.
const EXIT_STUCK: i32 = 75;

/// What `run` is given beside its configuration.
pub struct Surroundings {
    /// Where numbers go.
    pub metrics: Arc<Metrics>,
    /// What the probes answer.
    pub health: Arc<Health>,
    /// Set to drain and stop.
    pub stop: Arc<AtomicBool>,
    /// Forget the window that the state topic holds.
    pub new_window: bool,
}

/// Runs until told to stop. Everything received by then is committed when this returns `Ok`.
pub fn run(config: &Config, key: &Key, surroundings: &Surroundings) -> Result<()> {
    let Surroundings { metrics, health, stop, new_window } = surroundings;
    let cluster = connect::prepare(config)?;
    let inputs = input_partitions(config, &cluster);
    let partitions = Partitions::default();
    // Numbered in a fixed order, so that ties between pages of different partitions fall the same after a restart.
    for (topic, partition) in &inputs {
        partitions.number(topic, *partition).context("more partitions than can be told apart")?;
    }
    let shape = Shape::new(&config.sketch);
    let sketch = SketchId::new(config, key);
    let mut judge = Judge::new(Rules::new(&config.policy, &config.window, &shape), Plan::new(&config.window, &shape));
    let plan = judge.index().plan();
    metrics.index_capacity_pages.set(plan.capacity_pages as i64);
    metrics.index_bytes.set(judge.index().bytes() as i64);

    let (member, link) = Consuming::new(config, partitions.clone(), metrics.clone())?;
    let member = Arc::new(member);
    let publisher = Producing::new(config, &cluster, member.clone()).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    let parts = Parts {
        publisher,
        member: (member.clone(), link.clone()),
        cluster,
        sketch,
        partitions: partitions.clone(),
        metrics: metrics.clone(),
        new_window: *new_window,
    };
    let mut sink = KafkaSink::new(config, parts);
    let directory = snapshot_directory(config, metrics);
    // The producer has fenced whoever had our name: from here on the state topic's end is ours.
    let restored = if *new_window {
        Restored::default()
    } else {
        restore_window(config, sketch, &partitions, &mut judge, directory.as_ref(), surroundings)?
    };
    if *new_window {
        sink.begin_window().map_err(|fault| anyhow::anyhow!("cannot begin a new window: {fault}"))?;
    }
    if restored.records == 0 {
        member.begin(config.input.start, &inputs).context("cannot commit where to start")?;
    }
    let settings = SketchId::describe(config, key);
    let keeper = directory.map(|directory| {
        Keeper::start(config, sketch, settings, directory, restored.damaged_segments, metrics.clone())
    });
    let keeper = keeper.transpose()?;
    health.set_stage(Stage::Joining);
    let (beats, joined) = (health.clone(), health.clone());
    let poll_every = client::poll_every(config);
    let source =
        KafkaSource::new((member.clone(), link.clone()), partitions, metrics.clone(), inputs.len(), poll_every);
    let beat = move || {
        beats.beat();
        if link.waiting() > LONGEST_CALL {
            // librdkafka's call has lost its way (its issues 5456 and 5511), and a thread in it cannot be ended. The
            // next start settles the transaction, as after a crash.
            tracing::error!(seconds = LONGEST_CALL.as_secs(), "a call to the cluster does not return: exiting");
            std::process::exit(EXIT_STUCK);
        }
    };
    let mut source = source.with_health(beat, move || joined.set_ready(true));
    member.subscribe(&config.input.topics)?;

    let stage = SketchStage::new(Decoder::new(&config.input), Sketcher::new(shape, key))
        .with_sink_check(sink.check())
        .with_record_timestamps();
    let settings = pipeline::Settings {
        threads: config.pipeline.threads,
        limits: Limits {
            // A batch must fit into the overlay of open transactions.
            pages: config.pipeline.batch_pages.min(judge.index().plan().overlay_pages()),
            bytes: BATCH_BYTES,
            wait: config.pipeline.batch_wait,
        },
        commit_interval: config.kafka.commit_interval,
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        match pipeline::fly(&settings, &stage, &mut source, &mut sink, &mut judge, metrics, stop) {
            Ok(()) | Err(Fault::Closed) => break,
            Err(Fault::Fatal(reason)) => bail!(reason),
            Err(Fault::Aborted(reason)) => {
                tracing::warn!(reason, "transaction aborted: rewinding to what is committed");
                if started.elapsed() >= GOOD_FLIGHT {
                    pause = FIRST_PAUSE;
                }
            }
        }
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            health.beat();
            match recover(&mut source, &mut sink, &mut judge) {
                Ok(()) => break,
                Err(Fault::Fatal(reason)) => bail!(reason),
                Err(fault) => tracing::warn!(%fault, "recovering"),
            }
        }
    }
    health.set_stage(Stage::Draining);
    if let Some(keeper) = keeper {
        keeper.finish();
    }
    tracing::info!("drained: everything received has been committed");
    Ok(())
}

fn input_partitions(config: &Config, cluster: &Cluster) -> Vec<(String, i32)> {
    let mut topics = config.input.topics.clone();
    topics.sort_unstable();
    let all = topics.iter().flat_map(|topic| {
        let count = cluster.partitions.get(topic).copied().unwrap_or_default();
        (0..count).map(move |partition| (topic.clone(), partition))
    });
    all.collect()
}

/// Where the window is kept on disk, if it is. A disk that fails is not what pages wait for.
fn snapshot_directory(config: &Config, metrics: &Metrics) -> Option<Directory> {
    let path = config.snapshot.directory.as_ref()?;
    match Directory::open(path, &config.output.state_topic) {
        Ok(directory) => Some(directory),
        Err(error) => {
            metrics.snapshot_errors_total.inc();
            tracing::error!(directory = %path.display(), %error, "no snapshot: snapshot.directory cannot be used");
            None
        }
    }
}

/// Settles the transaction first, then the judge by it, then goes back to what is committed.
pub fn recover<P: Publisher, M: Member>(
    source: &mut KafkaSource<M>,
    sink: &mut KafkaSink<P, M>,
    judge: &mut Judge,
) -> Result<(), Fault> {
    if sink.settle()? == Settled::Committed {
        judge.commit();
    }
    judge.abort();
    source.rewind()
}

/// What was read. Without a whole window, `on_gap` decides.
fn restore_window(
    config: &Config,
    sketch: SketchId,
    partitions: &Partitions,
    judge: &mut Judge,
    directory: Option<&Directory>,
    surroundings: &Surroundings,
) -> Result<Restored> {
    let Surroundings { metrics, health, stop, .. } = surroundings;
    health.set_restoring(None);
    let started = Instant::now();
    loop {
        let progress = |left| {
            health.set_restoring(left);
            metrics.set_restore_remaining(left);
        };
        let watch = Watch { stop, metrics, progress: &progress };
        let result = restore::restore(config, sketch, partitions, judge, directory, &watch);
        if let Ok(restored) = &result {
            metrics.gap_offsets_total.inc_by(restored.gap + restored.damaged);
        }
        let (restored, error) = match result {
            Ok(restored) if restored.gap == 0 => {
                metrics.set_restore_remaining(Some(Duration::ZERO));
                let pages = judge.index().num_pages();
                metrics.index_pages.set(pages as i64);
                tracing::info!(
                    records = restored.records,
                    from_disk = restored.from_disk,
                    pages,
                    seconds = started.elapsed().as_secs_f64(),
                    "window restored"
                );
                return Ok(restored);
            }
            Ok(restored) => {
                let error = anyhow::anyhow!("{} offsets of the state topic are gone, and not on disk", restored.gap);
                (restored, error)
            }
            Err(error) if error.is::<Foreign>() || stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => (Restored::default(), error),
        };
        match config.recovery.on_gap {
            OnGap::Exit => return Err(error.context("the window cannot be restored")),
            OnGap::Serve => {
                tracing::error!(%error, pages = judge.index().num_pages(), "serving without the whole window: copies of forgotten pages get through");
                return Ok(Restored { records: restored.records.max(judge.index().num_pages() as u64), ..restored });
            }
            OnGap::Wait => {
                tracing::error!(%error, "the window cannot be restored: trying again");
                judge.clear();
                std::thread::sleep(LONGEST_PAUSE);
                if stop.load(Ordering::Relaxed) {
                    bail!("stopped before the window was restored");
                }
            }
        }
    }
}
