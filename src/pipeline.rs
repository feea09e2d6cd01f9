//! The three stages and the channels between them.
//!
//! ```text
//! source ─▶ Received ─┬▶ sketch ─┬▶ Sketched ─▶ judge ─▶ Judged ─▶ publish ─▶ sink
//!                     ├▶ sketch ─┤                ▲                   │
//!                     └▶ sketch ─┘                └──── committed ────┘
//!        batches go round the sketch threads in turn and are taken back in the same turn,
//!        so order is kept without a buffer to sort in
//! ```
//!
//! One *flight* is the life of these threads. It ends when the source has ended, when it is told to
//! stop (then everything received is judged, published and committed: a *drain*), or with a fault.
//! After a fault nothing is left in the channels; the caller takes back what the judge did since the last
//! commit, rewinds the source and starts another flight.
//!
//! Bounds: each channel holds [`CHANNEL_BATCHES`] batches, a batch holds [`batch::Limits`], and
//! batches are recycled, so a flight's memory is fixed by (threads, limits).

pub mod judge_stage;
mod observe;
pub mod sketch_stage;

use crate::batch::{self, JudgedBatch, ReceivedBatch, SketchedBatch};
use crate::crash_point;
use crate::index::judge::Judge;
use crate::metrics::Metrics;
use crate::transport::{Fault, Received, Sink, Source};
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, at, bounded, never, select_biased};
use judge_stage::JudgeStage;
use sketch_stage::SketchStage;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Batches that may wait in each channel: enough to bridge a hiccup, few enough to bound memory.
pub const CHANNEL_BATCHES: usize = 2;

/// How long a stage waits before it looks whether the world has changed.
const TICK: Duration = Duration::from_millis(20);

/// How a flight is flown.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sketch threads.
    pub threads: usize,
    /// Limits of a batch.
    pub limits: batch::Limits,
    /// Batches judged within this time make one transaction; zero makes each batch one.
    pub commit_interval: Duration,
}

/// Flies until the source ends, `stop` is set or something fails. On `Ok` everything received has
/// been committed. On `Err` the judge still holds what was not: the caller aborts it.
pub fn fly(
    settings: &Settings,
    stage: &SketchStage,
    source: &mut (impl Source + Send),
    sink: &mut (impl Sink + Send),
    judge: &mut Judge,
    metrics: &Metrics,
    stop: &AtomicBool,
) -> Result<(), Fault> {
    // A source that waits for pages must learn that nobody takes them any more.
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (recycle_tx, recycle_rx) = bounded(settings.threads * 2 * CHANNEL_BATCHES + 4);
        let mut to_sketch = Vec::new();
        let mut from_sketch = Vec::new();
        for number in 0..settings.threads {
            let (received_tx, received_rx) = bounded(CHANNEL_BATCHES);
            let (sketched_tx, sketched_rx) = bounded(CHANNEL_BATCHES);
            let stage = stage.clone();
            spawn(scope, format!("sketch-{number}"), move || sketch(stage, &received_rx, &sketched_tx, metrics));
            to_sketch.push(received_tx);
            from_sketch.push(sketched_rx);
        }
        let (judged_tx, judged_rx) = bounded(CHANNEL_BATCHES);
        let (committed_tx, committed_rx) = bounded(CHANNEL_BATCHES * 2 + 2);
        let judging = spawn(scope, "judge".into(), move || {
            let stage = JudgeStage::new(settings.commit_interval);
            judge_in_order(stage, judge, &from_sketch, &judged_tx, &committed_rx, metrics);
            // The publisher finishes what it has and then lets its end go. What it does not report as
            // committed is for the caller to take back.
            drop((judged_tx, from_sketch));
            committed_rx.iter().for_each(|()| judge.commit());
        });
        let over = &over;
        let publishing = spawn(scope, "publish".into(), move || {
            let result = publish(sink, &judged_rx, &committed_tx, &recycle_tx, metrics);
            over.store(true, Ordering::Relaxed);
            result
        });
        // The calling thread is the source's: librdkafka calls back on the thread that polls.
        let received = receive(settings, source, to_sketch, &recycle_rx, [stop, over]);
        judging.join().expect("the judge does not panic: bad pages are outcomes");
        let published = publishing.join().expect("the publisher does not panic: errors are faults");
        // The sink's fault is the cause when both ends fail: the source only saw its channel close.
        published.and(received)
    })
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    thread::Builder::new().name(name).spawn_scoped(scope, body).expect("a thread can be started")
}

/// Stage 0: fills batches and hands them round. Never blocks for longer than a tick without asking
/// the source to keep its connection alive.
fn receive(
    settings: &Settings,
    source: &mut impl Source,
    to_sketch: Vec<Sender<ReceivedBatch>>,
    recycled: &Receiver<ReceivedBatch>,
    ends: [&AtomicBool; 2],
) -> Result<(), Fault> {
    for turn in (0..to_sketch.len()).cycle() {
        let mut batch = recycled.try_recv().unwrap_or_default();
        batch.clear();
        let end = loop {
            if ends.iter().any(|end| end.load(Ordering::Relaxed)) {
                break true;
            }
            match source.receive(&mut batch, &settings.limits)? {
                Received::Some => break false,
                Received::None => {}
                Received::End => break true,
            }
        };
        if !batch.deliveries.is_empty() {
            crash_point::reach("poll");
            source.sent(&batch);
            let mut waiting = batch;
            loop {
                match to_sketch[turn].send_timeout(waiting, TICK) {
                    Ok(()) => break,
                    Err(SendTimeoutError::Timeout(batch)) => {
                        waiting = batch;
                        source.keep_alive()?;
                    }
                    // A later stage failed and says why.
                    Err(SendTimeoutError::Disconnected(_)) => return Ok(()),
                }
            }
        }
        if end {
            break;
        }
    }
    drop(to_sketch);
    Ok(())
}

/// Stage 1: decodes and sketches. Stateless, one of many.
fn sketch(
    mut stage: SketchStage,
    received: &Receiver<ReceivedBatch>,
    sketched: &Sender<SketchedBatch>,
    metrics: &Metrics,
) {
    for batch in received {
        let started = Instant::now();
        let batch = stage.run(batch);
        crash_point::reach("sketch");
        metrics.stage_duration_seconds[observe::SKETCH].observe(started.elapsed().as_secs_f64());
        if sketched.send(batch).is_err() {
            return;
        }
    }
}

/// Stage 2: judges in the order of reception, on one thread, and says where transactions end.
fn judge_in_order(
    mut stage: JudgeStage,
    judge: &mut Judge,
    from_sketch: &[Receiver<SketchedBatch>],
    judged_tx: &Sender<JudgedBatch>,
    committed_rx: &Receiver<()>,
    metrics: &Metrics,
) {
    let mut tally = metrics.tally();
    for turn in (0..from_sketch.len()).cycle() {
        let batch = loop {
            let time_is_up = stage.deadline().map_or_else(never, at);
            select_biased! {
                recv(committed_rx) -> committed => match committed {
                    Ok(()) => stage.committed(judge, Instant::now()),
                    // The publisher has given up.
                    Err(_) => return,
                },
                recv(from_sketch[turn]) -> received => match received {
                    Ok(batch) => break batch,
                    Err(_) => {
                        stage.end(judge, Instant::now()).into_iter().for_each(|end| drop(judged_tx.send(end)));
                        return;
                    }
                },
                recv(time_is_up) -> _ => {
                    if stage.end(judge, Instant::now()).is_some_and(|end| judged_tx.send(end).is_err()) {
                        return;
                    }
                }
            }
        };
        while !JudgeStage::has_room(judge, &batch) {
            if stage.end(judge, Instant::now()).is_some_and(|end| judged_tx.send(end).is_err()) {
                return;
            }
            match committed_rx.recv() {
                Ok(()) => stage.committed(judge, Instant::now()),
                Err(_) => return,
            }
        }
        let started = Instant::now();
        let judged = stage.run(judge, batch, started);
        crash_point::reach("insert");
        metrics.stage_duration_seconds[observe::JUDGE].observe(started.elapsed().as_secs_f64());
        observe::judged(&mut tally, metrics, judge);
        if judged_tx.send(judged).is_err() {
            return;
        }
    }
}

/// Stage 3: publishes and commits.
fn publish(
    sink: &mut impl Sink,
    judged: &Receiver<JudgedBatch>,
    committed: &Sender<()>,
    recycle: &Sender<ReceivedBatch>,
    metrics: &Metrics,
) -> Result<(), Fault> {
    let mut tally = metrics.tally();
    let mut open = Vec::new();
    for batch in judged {
        let started = Instant::now();
        if let Some(sketched) = batch.batch.as_ref() {
            sink.deliver(&batch, sketched)?;
            observe::delivered(&mut tally, &batch, sketched);
            open.push(observe::Published::new(sketched));
        }
        if batch.ends_transaction {
            sink.commit()?;
            open.drain(..).for_each(|published| published.committed(&mut tally));
            tally.flush();
        }
        metrics.stage_duration_seconds[observe::PUBLISH].observe(started.elapsed().as_secs_f64());
        if batch.ends_transaction && committed.send(()).is_err() {
            return Ok(());
        }
        if let Some(received) = batch.recycle() {
            // A full channel only means that enough batches are about.
            let _ = recycle.try_send(received);
        }
    }
    Ok(())
}
