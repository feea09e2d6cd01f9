//! Snapshot and state topic → the window.

use super::replay::Replay;
use super::{Partitions, client};
use crate::config::{Config, OnGap};
use crate::index::judge::Judge;
use crate::index::zeroed::Populate;
use crate::metrics::Metrics;
use crate::state::SketchId;
use crate::state::record;
use crate::state::segment::{self, Chunk};
use crate::state::snapshot::{self, Directory, Segment, Step};
use anyhow::{Context, Result, bail};
use crossbeam_channel::bounded;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Chunks that are read and checked ahead of the one that is taken in.
const CHUNKS_AHEAD: usize = 4;

/// Records whose places in the index are on their way while those before them are taken in.
const GROUP: usize = 16;

/// Pages for which it is worth a thread to clear memory ahead of them.
const POPULATED_FROM_PAGES: u64 = 100_000;

/// What a restore did.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    /// Records read.
    pub records: u64,
    /// Those of them that were on disk.
    pub from_disk: u64,
    /// Records that could not be read.
    pub damaged: u64,
    /// Records of other sketches, before the window was begun anew.
    pub foreign: u64,
    /// Offsets that neither snapshot nor topic has any more.
    pub gap: u64,
    /// Segments that could not be read whole.
    pub damaged_segments: Vec<Segment>,
}

/// The end of a partition is what is waited for here, not an error to be logged.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::warn!(%error, reason, "kafka");
        }
    }
}

impl ConsumerContext for Quiet {}

/// The state was made by other settings: it can never be used, whatever `on_gap` says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Foreign(String);

/// Who wants to know, and who may end it.
pub struct Watch<'a> {
    /// Set to stop.
    pub stop: &'a AtomicBool,
    /// Where errors are counted.
    pub metrics: &'a Metrics,
    /// Is told the remaining time whenever it is known better.
    pub progress: &'a dyn Fn(Option<Duration>),
}

/// Rebuilds the window from the snapshot, where there is one, and the state topic behind it, to what is committed now.
pub fn restore(
    config: &Config,
    sketch: SketchId,
    partitions: &Partitions,
    judge: &mut Judge,
    directory: Option<&Directory>,
    watch: &Watch,
) -> Result<Restored> {
    let topic = &config.output.state_topic;
    let consumer: BaseConsumer<Quiet> = client::state_reader(config).create_with_context(Quiet)?;
    let (low, high) = consumer.fetch_watermarks(topic, 0, ANSWER_WITHIN).context("cannot read the state topic")?;
    let (low, high) = (low.max(0) as u64, high.max(0) as u64);
    let segments = directory.map(|directory| sound_segments(directory, watch.metrics)).unwrap_or_default();
    let new_topic = snapshot::is_new_topic(&segments, high);
    if new_topic {
        tracing::error!(
            topic,
            end = high,
            "the state topic ends before the snapshot does: it was made anew; reading both"
        );
    }
    let steps = snapshot::steps(&segments, low, high);
    let work = steps.iter().map(|step| match step {
        Step::Segment(number) => segments[*number].header.records,
        Step::Topic { first, next } => next - first,
        Step::Gap { .. } => 0,
    });
    let work = work.sum();
    let mut memory = judge.expect_pages(work as usize);
    let started = Instant::now();
    let mut run = Run {
        config,
        replay: Replay::new(sketch, partitions, judge),
        watch,
        restored: Restored::default(),
        work,
        done: 0,
        started,
        report_at: started + REPORT_EVERY,
    };
    let mut take_step = |step: &Step| match *step {
        Step::Topic { first, next } => run.topic(&consumer, first, next),
        Step::Gap { first, next } => run.gap(first, next),
        Step::Segment(number) => {
            let header = &segments[number].header;
            let Some(rest) = run.segment(&segments[number])? else { return Ok(()) };
            // Another era's offsets mean nothing in the topic as it is now.
            let is_of_topic = !new_topic && segments.last().is_some_and(|last| last.header.era == header.era);
            let kept = if is_of_topic { low.clamp(rest, header.next) } else { header.next };
            run.gap(rest, kept)?;
            run.topic(&consumer, kept, header.next)
        }
    };
    let over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        if work >= POPULATED_FROM_PAGES {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && !memory.is_empty() {
                    memory.retain_mut(Populate::step);
                }
            });
        }
        let result = steps.iter().try_for_each(&mut take_step);
        over.store(true, Ordering::Relaxed);
        result
    });
    run.replay.settle();
    let Replay { records, foreign, damaged, last_foreign, .. } = run.replay;
    let restored = Restored { records, foreign, damaged, ..run.restored };
    result?;
    if let Some(id) = last_foreign {
        return Err(Foreign(format!(
            "the state topic {topic} or its snapshot holds sketches {id}, this configuration makes {sketch}: key, \
             shingles, bytes, bands, fields or text version changed. Restore the old settings, or begin a new window \
             with --new-window"
        ))
        .into());
    }
    Ok(restored)
}

/// The segments that can be used; the others are named in the log.
fn sound_segments(directory: &Directory, metrics: &Metrics) -> Vec<Segment> {
    match directory.list() {
        Ok(contents) => {
            for (path, damage) in &contents.foreign {
                metrics.snapshot_errors_total.inc();
                tracing::error!(file = %path.display(), %damage, "a segment of the snapshot cannot be used");
            }
            contents.segments
        }
        Err(error) => {
            metrics.snapshot_errors_total.inc();
            tracing::error!(directory = %directory.path().display(), %error, "the snapshot cannot be read");
            Vec::new()
        }
    }
}

/// A restore under way.
struct Run<'a> {
    config: &'a Config,
    replay: Replay<'a>,
    watch: &'a Watch<'a>,
    restored: Restored,
    /// Records and offsets to read, and those that were.
    work: u64,
    done: u64,
    started: Instant,
    report_at: Instant,
}

impl Run<'_> {
    /// Takes in a segment. `Some`: the first offset that could not be read.
    fn segment(&mut self, segment: &Segment) -> Result<Option<u64>> {
        thread::scope(|scope| {
            let (chunks_tx, chunks) = bounded::<Result<Chunk, (u64, segment::Damage)>>(CHUNKS_AHEAD);
            let (spare_tx, spare) = bounded::<Chunk>(CHUNKS_AHEAD);
            scope.spawn(move || {
                let result = segment.open().map_err(|damage| (segment.header.first, damage)).and_then(|mut reader| {
                    loop {
                        let mut chunk = spare.try_recv().unwrap_or_default();
                        match reader.read(&mut chunk) {
                            // Nobody takes it if the restore has ended.
                            Ok(true) if chunks_tx.send(Ok(chunk)).is_err() => return Ok(()),
                            Ok(true) => {}
                            Ok(false) => return Ok(()),
                            Err(damage) => return Err((reader.next(), damage)),
                        }
                    }
                });
                if let Err(damage) = result {
                    let _ = chunks_tx.send(Err(damage));
                }
            });
            for chunk in chunks {
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err((next, damage)) => {
                        self.watch.metrics.snapshot_errors_total.inc();
                        self.restored.damaged_segments.push(segment.clone());
                        let file = segment.path.display();
                        tracing::error!(%file, %damage, offset = next, "the rest of a segment of the snapshot cannot be used");
                        return Ok(Some(next));
                    }
                };
                self.look_around()?;
                let before = self.replay.records;
                self.take(chunk.records(), |nth| {
                    format!("{}, record {nth} from offset {}", segment.path.display(), chunk.first)
                })?;
                self.restored.from_disk += self.replay.records - before;
                self.done += self.replay.records - before;
                let _ = spare_tx.try_send(chunk);
            }
            Ok(None)
        })
    }

    /// Takes in what the topic has of these offsets.
    fn topic(&mut self, consumer: &BaseConsumer<Quiet>, first: u64, next: u64) -> Result<()> {
        if first >= next {
            return Ok(());
        }
        let topic = &self.config.output.state_topic;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(first as i64))?;
        consumer.assign(&list)?;
        let done = self.done;
        loop {
            let message = match consumer.poll(Duration::from_millis(200)) {
                // Read committed: this end is before transactions that are still open, and they are not ours,
                // since the producer has been initialised.
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(error)) => bail!("cannot read the state topic: {error}"),
                Some(Ok(message)) => Some(message),
                None => None,
            };
            self.look_around()?;
            let Some(message) = message else { continue };
            let offset = message.offset().max(0) as u64;
            // Other members go on writing: what they remember from now on is not ours to follow.
            if offset >= next {
                break;
            }
            self.take(std::iter::once(message.payload().unwrap_or_default()), |_| format!("{topic}, offset {offset}"))?;
            self.done = done + (offset + 1 - first);
            if offset + 1 == next {
                break;
            }
        }
        self.done = done + (next - first);
        Ok(())
    }

    fn gap(&mut self, first: u64, next: u64) -> Result<()> {
        if first < next {
            self.restored.gap += next - first;
            tracing::error!(
                first,
                next,
                "neither snapshot nor state topic has these offsets: their pages are forgotten"
            );
        }
        Ok(())
    }

    /// Takes in records; `place` says where the nth is.
    fn take<'r>(&mut self, records: impl Iterator<Item = &'r [u8]>, place: impl Fn(usize) -> String) -> Result<()> {
        let mut records = records.enumerate().map(|(nth, bytes)| (nth, record::decode(bytes)));
        let mut group = Vec::with_capacity(GROUP);
        loop {
            group.extend(records.by_ref().take(GROUP));
            if group.is_empty() {
                return Ok(());
            }
            group.iter().for_each(|(_, decoded)| self.replay.expect(decoded));
            group.iter().try_for_each(|(nth, decoded)| self.replay.take(decoded, || place(*nth)))?;
            group.clear();
        }
    }

    /// Is there still time? Says how far it is, now and then.
    fn look_around(&mut self) -> Result<()> {
        if self.watch.stop.load(Ordering::Relaxed) {
            bail!("stopped before the window was restored");
        }
        let now = Instant::now();
        let limit = self.config.recovery.max_wait;
        if now - self.started > limit && self.config.recovery.on_gap != OnGap::Wait {
            bail!("it took longer than recovery.max_wait = {} s", limit.as_secs())
        }
        if now >= self.report_at {
            self.report_at = now + REPORT_EVERY;
            let done = (self.done as f64 / self.work.max(1) as f64).clamp(1e-6, 1.0);
            let left = (now - self.started).mul_f64(1.0 / done - 1.0);
            let records = self.replay.records;
            tracing::info!(records, percent = done * 100.0, seconds_left = left.as_secs(), "restoring");
            (self.watch.progress)(Some(left));
        }
        Ok(())
    }
}
