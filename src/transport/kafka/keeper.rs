//! The state topic → the snapshot: a thread that follows what is committed and writes it to disk.
//!
//! It stands apart from the judge and holds nothing but a chunk. Whatever goes wrong here is logged, counted and tried
//! again; pages go on being judged, and a restart reads from the topic what the disk does not have.

use super::client;
use super::restore::Quiet;
use crate::config::Config;
use crate::crash_point;
use crate::index::NO_TIME;
use crate::index::clock::Clock;
use crate::index::plan::Plan;
use crate::metrics::Metrics;
use crate::sketch::Shape;
use crate::state::SketchId;
use crate::state::record::{self, StateRecord};
use crate::state::segment::Header;
use crate::state::snapshot::{self, Directory, Draft, Limits, SEGMENT_BYTES, Segment};
use anyhow::{Context, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);

/// Waiting time after a failure, doubled with each that follows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Longest time to read up to the end of what is committed before a segment is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Seconds by which the clock of what is remembered may be ahead of the judge's own.
const CLOCK_SLACK_SECONDS: u32 = 3_600;

/// The thread.
pub struct Keeper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts it. `settings` says for people what the sketches are made of, `damaged` what a restore could not read.
    pub fn start(
        config: &Config,
        sketch: SketchId,
        settings: String,
        directory: Directory,
        damaged: Vec<Segment>,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (config, stopping) = (config.clone(), stop.clone());
        let body = move || {
            let mut pause = FIRST_PAUSE;
            while !stopping.load(Ordering::Relaxed) {
                let mut work = Work::new(&config, sketch, &settings, &directory, &damaged, &metrics);
                let Err(error) = work.run(&stopping) else { return };
                if let Some(draft) = work.draft {
                    draft.discard();
                }
                if work.published {
                    pause = FIRST_PAUSE;
                }
                metrics.snapshot_errors_total.inc();
                tracing::error!("the snapshot cannot be written, trying again in {} s: {error:#}", pause.as_secs());
                let until = Instant::now() + pause;
                while Instant::now() < until && !stopping.load(Ordering::Relaxed) {
                    thread::sleep(POLL);
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        let thread = thread::Builder::new().name("snapshot".into()).spawn(body).context("cannot start a thread")?;
        Ok(Self { stop, thread })
    }

    /// Writes what is left, if that is soon done: a restart would read it from the topic otherwise.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + CLOSE_WITHIN + POLL;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A segment is about to be closed.
struct Closing {
    /// The end of what was committed: a reader of what is committed is told of no other.
    end: u64,
    /// Without having read that far, it is closed where it is.
    until: Instant,
    /// Is it the last one, since the daemon stops?
    last: bool,
}

/// From one failure to the next.
struct Work<'a> {
    config: &'a Config,
    sketch: SketchId,
    settings: &'a str,
    directory: &'a Directory,
    metrics: &'a Metrics,
    /// Segments that the restore could not read whole.
    damaged: &'a [Segment],
    segments: Vec<Segment>,
    draft: Option<Draft>,
    draft_since: Instant,
    published: bool,
    /// How often the topic was made anew.
    era: u32,
    /// The next offset to be read.
    next: u64,
    /// Of the pages remembered.
    clock: Clock,
}

impl<'a> Work<'a> {
    fn new(
        config: &'a Config,
        sketch: SketchId,
        settings: &'a str,
        directory: &'a Directory,
        damaged: &'a [Segment],
        metrics: &'a Metrics,
    ) -> Self {
        Self {
            config,
            sketch,
            settings,
            directory,
            metrics,
            damaged,
            segments: Vec::new(),
            draft: None,
            draft_since: Instant::now(),
            published: false,
            era: 0,
            next: 0,
            clock: Clock::default(),
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let topic = &self.config.output.state_topic;
        let consumer: BaseConsumer<Quiet> = client::snapshot_reader(self.config).create_with_context(Quiet)?;
        let (low, high) = consumer.fetch_watermarks(topic, 0, ANSWER_WITHIN).context("cannot read the state topic")?;
        self.tidy(low.max(0) as u64, high.max(0) as u64)?;
        self.read_on(&consumer)?;
        let mut closing: Option<Closing> = None;
        loop {
            let last = stop.load(Ordering::Relaxed);
            let is_due = last || self.draft.is_some() && self.draft_since.elapsed() >= self.config.snapshot.interval;
            if is_due && closing.is_none() {
                let (_, end) =
                    consumer.fetch_watermarks(topic, 0, ANSWER_WITHIN).context("cannot read the state topic")?;
                closing = Some(Closing { end: end.max(0) as u64, until: Instant::now() + CLOSE_WITHIN, last });
                self.read_on(&consumer)?;
            }
            match consumer.poll(POLL) {
                Some(Ok(message)) => {
                    self.take(message.offset().max(0) as u64, message.payload().unwrap_or_default())?;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => match &mut closing {
                    Some(closing) => {
                        // Everything before that end has come by now; what did not come is no record.
                        self.next = self.next.max(closing.end);
                        closing.until = Instant::now();
                    }
                    None if self.draft.is_none() => self.up_to_date(),
                    None => {}
                },
                Some(Err(error)) => bail!("cannot read the state topic: {error}"),
                None => {}
            }
            let is_large = self.draft.as_ref().is_some_and(|draft| draft.writer.bytes() >= SEGMENT_BYTES);
            if is_large || closing.as_ref().is_some_and(|closing| Instant::now() >= closing.until) {
                self.publish()?;
                if closing.take().is_some_and(|closing| closing.last) {
                    return Ok(());
                }
            }
        }
    }

    /// Reads from the next offset on; once there is nothing more, that is said again.
    fn read_on(&self, consumer: &BaseConsumer<Quiet>) -> Result<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.config.output.state_topic, 0, Offset::Offset(self.next as i64))?;
        Ok(consumer.assign(&list)?)
    }

    /// Finds where to go on, and removes what is of no use.
    fn tidy(&mut self, low: u64, high: u64) -> Result<()> {
        self.directory.remove_partial()?;
        let is_there = |segment: &&Segment| segment.path.exists();
        self.damaged.iter().filter(is_there).try_for_each(|segment| self.directory.salvage(segment))?;
        let contents = self.directory.list()?;
        contents.superseded.iter().try_for_each(|segment| self.directory.remove(segment))?;
        // The restore has named them in the log.
        contents.foreign.iter().try_for_each(|(path, _)| self.directory.set_aside(path))?;
        self.segments = contents.segments;
        self.era = self.segments.last().map_or(0, |last| last.header.era);
        self.next = self.segments.last().map_or(low, |last| last.header.next);
        if snapshot::is_new_topic(&self.segments, high) {
            (self.era, self.next) = (self.era + 1, low);
        } else {
            self.reopen_hole(low)?;
        }
        self.next = self.next.max(low);
        self.tell_bytes();
        Ok(())
    }

    /// Where a segment is missing whose offsets the topic still has, those behind it are written anew too, for their order
    /// is the window's.
    fn reopen_hole(&mut self, low: u64) -> Result<()> {
        let is_hole = |pair: &[Segment]| {
            let [before, after] = [&pair[0].header, &pair[1].header];
            before.era == self.era && after.era == self.era && before.next < after.first && low <= before.next
        };
        if let Some(before) = self.segments.windows(2).position(is_hole) {
            self.next = self.segments[before].header.next;
            tracing::warn!(offset = self.next, "the snapshot is written anew from here on: a segment is missing");
            self.segments.drain(before + 1..).try_for_each(|segment| self.directory.remove(&segment))?;
        }
        Ok(())
    }

    fn take(&mut self, offset: u64, payload: &[u8]) -> Result<()> {
        if self.draft.is_none() {
            let topic = &self.config.output.state_topic;
            let header = Header::new(self.sketch.to_string(), self.settings, topic, self.era, self.next);
            self.draft = Some(self.directory.begin(header, self.segments.last()).context("cannot begin a segment")?);
            self.draft_since = Instant::now();
        }
        let decoded = record::decode(payload);
        if let Ok((StateRecord::Remember(page), _)) = &decoded
            && page.event_time != NO_TIME
        {
            self.clock.observe(page.event_time);
        }
        let draft = self.draft.as_mut().expect("it was just begun");
        let count = |header: &mut Header| match &decoded {
            Ok((StateRecord::Remember(page), _)) => {
                header.remembered += 1;
                header.ended += u64::from(page.replaced.is_some());
                header.untimed += u64::from(page.event_time == NO_TIME);
                header.latest = header.latest.max(page.event_time);
            }
            Ok((StateRecord::Window, _)) => header.window = Some(offset),
            Ok((StateRecord::Forget { .. }, _)) => header.ended += 1,
            // It is kept as it is: the restore counts it.
            Err(_) => {}
        };
        draft.writer.push(offset, payload, count).context("cannot write a segment")?;
        crash_point::reach("segment");
        self.next = offset + 1;
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        if let Some(mut draft) = self.draft.take() {
            draft.writer.pass(self.next);
            let segment = self.directory.publish(draft).context("cannot finish a segment")?;
            // It may have taken the last one's place.
            self.segments.pop_if(|last| last.header.first == segment.header.first && last.header.era == self.era);
            self.segments.push(segment);
            self.published = true;
            self.prune()?;
        }
        self.up_to_date();
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        let window = &self.config.window;
        // A match may have renewed any age.
        let max_age = window.max_age.filter(|_| !window.refresh_on_match).map(|age| age.as_secs() as u32);
        let oldest =
            max_age.zip(self.clock.now()).map(|(age, now)| now.saturating_sub(age.saturating_add(CLOCK_SLACK_SECONDS)));
        let limits = Limits {
            oldest,
            capacity_pages: Plan::new(window, &Shape::new(&self.config.sketch)).capacity_pages as u64,
            max_bytes: self.config.snapshot.max_disk,
        };
        let (needless, no_room) = snapshot::outdated(&self.segments, &limits);
        if no_room > 0 {
            let pages = self.segments[needless..needless + no_room].iter().map(|segment| segment.header.remembered);
            tracing::error!(
                pages = pages.sum::<u64>(),
                "the snapshot would take more than snapshot.max_disk: a restart will have forgotten these pages"
            );
        }
        self.segments.drain(..needless + no_room).try_for_each(|segment| self.directory.remove(&segment))?;
        self.tell_bytes();
        Ok(())
    }

    fn tell_bytes(&self) {
        self.metrics.snapshot_bytes.set(self.segments.iter().map(Segment::bytes).sum::<u64>() as i64);
    }

    fn up_to_date(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.metrics.snapshot_last_success_timestamp_seconds.set(now.as_secs_f64());
    }
}
