//! One life of the daemon: the real stages, source, sink, judge and recovery, a step at a time on one thread.

use super::clients::{Identity, SimMember, SimPublisher, World, instant};
use super::log::Place;
use super::{Broken, Scene};
use pagesieve::batch::{JudgedBatch, Limits, ReceivedBatch, SketchedBatch};
use pagesieve::daemon;
use pagesieve::index::Origin;
use pagesieve::index::judge::{Judge, Rules};
use pagesieve::page::decode::Decoder;
use pagesieve::pipeline::CHANNEL_BATCHES;
use pagesieve::pipeline::judge_stage::JudgeStage;
use pagesieve::pipeline::sketch_stage::SketchStage;
use pagesieve::sketch::Sketcher;
use pagesieve::state::record;
use pagesieve::transport::kafka::Partitions;
use pagesieve::transport::kafka::link::Link;
use pagesieve::transport::kafka::replay::Replay;
use pagesieve::transport::kafka::sink::{KafkaSink, Parts};
use pagesieve::transport::kafka::source::KafkaSource;
use pagesieve::transport::{Fault, Received, Sink, Source};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the offset of a page that was received before is marked, to make it look like another page.
const RECEIVED_BEFORE_SHIFT: u32 = 40;

/// Between flights or in one.
#[derive(Debug, PartialEq)]
pub enum State {
    Flying,
    /// A transaction aborted: to be recovered from.
    Aborted,
    /// It ended, by itself or by a signal.
    Ended,
}

/// A daemon.
pub struct Process {
    pub identity: Identity,
    pub state: State,
    pub member: Arc<SimMember>,
    pub link: Arc<Link>,
    world: World,
    broken: Option<Broken>,
    partitions: Partitions,
    stage: SketchStage,
    judging: JudgeStage,
    judge: Judge,
    source: KafkaSource<SimMember>,
    sink: KafkaSink<SimPublisher, SimMember>,
    limits: Limits,
    received: VecDeque<ReceivedBatch>,
    sketched: VecDeque<SketchedBatch>,
    judged: VecDeque<JudgedBatch>,
    /// Commits that the judge has not heard of.
    commits: usize,
    /// Transactions that ended and whose commits the judge has not heard of.
    sealed: usize,
    commit_interval: Duration,
}

impl Process {
    /// Fences whoever has the name, restores the window and is ready to join. `None` if it was killed on the way.
    pub fn start(scene: &Scene, identity: Identity, world: World) -> Option<Self> {
        let partitions = Partitions::default();
        for (topic, partition) in world.lock().expect("one thread").log.partitions(&scene.config.input.topics[0]) {
            partitions.number(&topic, partition);
        }
        let link = Arc::new(Link::default());
        let member = SimMember::new(world.clone(), identity.clone(), partitions.clone(), link.clone());
        let member = Arc::new(member);
        let publisher = SimPublisher::open(member.clone(), &scene.config.output.topic).ok()?;
        let sink = KafkaSink::new(
            &scene.config,
            Parts {
                publisher,
                member: (member.clone(), link.clone()),
                cluster: scene.cluster.clone(),
                sketch: scene.sketch,
                partitions: partitions.clone(),
                metrics: scene.metrics.clone(),
                new_window: false,
            },
        );
        let group = (member.clone(), link.clone());
        let source = KafkaSource::new(group, partitions.clone(), scene.metrics.clone(), 1, Duration::MAX);
        let stage = SketchStage::new(Decoder::new(&scene.config.input), Sketcher::new(scene.shape, &scene.key));
        let mut process = Self {
            stage: stage.with_sink_check(sink.check()).with_record_timestamps(),
            judging: JudgeStage::new(scene.config.kafka.commit_interval),
            judge: Judge::new(Rules::new(&scene.config.policy, &scene.config.window, &scene.shape), scene.plan.clone()),
            limits: Limits { pages: scene.batch_pages, bytes: 1 << 20, wait: Duration::ZERO },
            identity,
            state: State::Flying,
            member,
            link,
            broken: scene.broken,
            partitions,
            source,
            sink,
            received: VecDeque::new(),
            sketched: VecDeque::new(),
            judged: VecDeque::new(),
            commits: 0,
            sealed: 0,
            commit_interval: scene.config.kafka.commit_interval,
            world,
        };
        if process.broken == Some(Broken::RecoveryJudges) {
            process.judge_again(scene);
        } else {
            process.restore(scene);
        }
        Some(process)
    }

    fn restore(&mut self, scene: &Scene) {
        let world = self.world.lock().expect("one thread");
        let mut replay = Replay::new(scene.sketch, &self.partitions, &mut self.judge);
        for (_, record) in world.log.committed_records(&scene.config.output.state_topic) {
            let bytes = record.value.as_deref().unwrap_or_default();
            replay.take(&record::decode(bytes), String::new).expect("the records fit this index");
        }
        assert_eq!((replay.damaged, replay.foreign), (0, 0));
        replay.settle();
    }

    /// Rule 4 switched off: what is committed of the input is judged once more, one partition after the other.
    fn judge_again(&mut self, scene: &Scene) {
        let topic = &scene.config.input.topics[0];
        let mut batches = Vec::new();
        {
            let world = self.world.lock().expect("one thread");
            for place in world.log.partitions(topic) {
                let source = self.partitions.number(topic, place.1).expect("few partitions");
                for offset in 0..world.log.committed(&place).ok().flatten().unwrap_or(0) {
                    let record = world.log.record(&place, offset).expect("it is there");
                    batches.push(scene.received(record, Origin { source, offset }));
                }
            }
        }
        for batch in batches {
            let sketched = self.stage.run(batch);
            pagesieve::batch::judge(&mut self.judge, sketched);
            self.judge.seal();
            self.judge.commit();
        }
    }

    /// Does one of the things that its threads could do now. `choice` picks.
    pub fn step(&mut self, choice: usize) {
        match self.state {
            State::Ended => {}
            State::Aborted => self.recover(),
            State::Flying => match choice % 4 {
                0 => self.receive(),
                1 => self.sketch(),
                2 => self.judge(),
                _ => self.publish(),
            },
        }
        if self.identity.is_killed() {
            self.state = State::Ended;
        }
    }

    /// The same, but nothing is received: a callback has the source's thread.
    pub fn step_without_receiving(&mut self, choice: usize) {
        if self.state == State::Flying {
            self.step(1 + choice);
        }
    }

    /// The group gives partitions.
    pub fn assign(&self, places: &BTreeSet<Place>) {
        if !places.is_empty() {
            self.member.assign(places);
        }
    }

    /// The source thread.
    fn receive(&mut self) {
        if self.received.len() >= CHANNEL_BATCHES {
            return;
        }
        let mut batch = ReceivedBatch::default();
        match self.source.receive(&mut batch, &self.limits) {
            Ok(Received::Some) => {
                self.source.sent(&batch);
                self.received.push_back(batch);
            }
            Ok(_) => {}
            Err(fault) => {
                // What is under way is finished; the stages do not know yet.
                self.drain();
                self.fail(fault);
            }
        }
    }

    fn sketch(&mut self) {
        if self.sketched.len() < CHANNEL_BATCHES
            && let Some(batch) = self.received.pop_front()
        {
            self.sketched.push_back(self.stage.run(batch));
        }
    }

    fn hear(&mut self) {
        let now = self.now();
        for _ in 0..std::mem::take(&mut self.commits) {
            self.judging.committed(&mut self.judge, now);
            self.sealed -= 1;
        }
    }

    fn now(&self) -> Instant {
        instant(self.world.lock().expect("one thread").now_ms)
    }

    /// Hands a batch on to be published.
    fn hand_on(&mut self, judged: Option<JudgedBatch>) {
        let Some(judged) = judged else { return };
        self.sealed += usize::from(judged.ends_transaction);
        self.judged.push_back(undisguised(judged));
    }

    fn end_transaction(&mut self) {
        let now = self.now();
        let end = self.judging.end(&mut self.judge, now);
        self.hand_on(end);
    }

    fn judge(&mut self) {
        self.hear();
        if self.judged.len() >= CHANNEL_BATCHES {
            return;
        }
        let now = self.now();
        match self.sketched.front() {
            Some(batch) if JudgeStage::has_room(&self.judge, batch) => {
                let mut batch = self.sketched.pop_front().expect("it is there");
                if self.broken == Some(Broken::SelfUnknown) {
                    self.disguise(&mut batch);
                }
                let judged = self.judging.run(&mut self.judge, batch, now);
                self.hand_on(Some(judged));
            }
            Some(_) => self.end_transaction(),
            None if self.judging.deadline().is_some_and(|deadline| now >= deadline) => self.end_transaction(),
            None => {}
        }
    }

    /// Rule 1 switched off: a page that comes again is taken for another one.
    fn disguise(&self, batch: &mut SketchedBatch) {
        let world = self.world.lock().expect("one thread");
        for delivery in &mut batch.received.deliveries {
            let (topic, partition) = self.partitions.name(delivery.origin.source);
            let times = world.received[&(topic.to_string(), partition, delivery.origin.offset)] - 1;
            delivery.origin.offset |= u64::from(times.min(127)) << RECEIVED_BEFORE_SHIFT;
        }
    }

    fn publish(&mut self) {
        let Some(batch) = self.judged.pop_front() else { return };
        let published = (|| {
            if let Some(sketched) = batch.batch.as_ref() {
                self.sink.deliver(&batch, sketched)?;
            }
            if batch.ends_transaction {
                self.sink.commit()?;
                self.commits += 1;
            }
            Ok(())
        })();
        if let Err(fault) = published {
            self.fail(fault);
        }
    }

    /// A flight ended with a fault: nothing stays in the channels.
    fn fail(&mut self, fault: Fault) {
        if self.state != State::Flying {
            return;
        }
        self.hear();
        (self.received, self.sketched, self.judged) = Default::default();
        self.judging = JudgeStage::new(self.commit_interval);
        self.state = if matches!(fault, Fault::Aborted(_)) { State::Aborted } else { State::Ended };
    }

    /// Everything received is judged, published and committed, or something fails.
    pub fn drain(&mut self) {
        while self.state == State::Flying && !self.is_idle() {
            self.sketch();
            if self.received.is_empty() && self.sketched.is_empty() {
                self.hear();
                self.end_transaction();
            } else {
                self.judge();
            }
            self.publish();
        }
    }

    fn is_idle(&self) -> bool {
        self.received.is_empty() && self.sketched.is_empty() && self.judged.is_empty() && !self.judging.is_open()
    }

    fn recover(&mut self) {
        let recovered = if self.broken == Some(Broken::OverlayKept) {
            self.recover_badly()
        } else {
            daemon::recover(&mut self.source, &mut self.sink, &mut self.judge)
        };
        match recovered {
            Ok(()) => {
                self.state = State::Flying;
                self.sealed = 0;
            }
            Err(Fault::Aborted(_)) => {}
            Err(_) => self.state = State::Ended,
        }
    }

    /// Rule 3 switched off: what an aborted transaction did to the index stays.
    fn recover_badly(&mut self) -> Result<(), Fault> {
        self.sink.settle()?;
        self.judge.seal();
        for _ in 0..=std::mem::take(&mut self.sealed) {
            self.judge.commit();
        }
        self.source.rewind()
    }
}

/// Takes the disguise off again, for all but the judge.
fn undisguised(mut judged: JudgedBatch) -> JudgedBatch {
    const OFFSET: u64 = (1 << RECEIVED_BEFORE_SHIFT) - 1;
    let deliveries = judged.batch.iter_mut().flat_map(|batch| &mut batch.received.deliveries);
    deliveries.for_each(|delivery| delivery.origin.offset &= OFFSET);
    for page in &mut judged.judged {
        page.canonical.iter_mut().for_each(|canonical| canonical.origin.offset &= OFFSET);
        page.replaced.iter_mut().for_each(|origin| origin.offset &= OFFSET);
    }
    judged.forgotten.iter_mut().for_each(|(_, _, origin)| origin.offset &= OFFSET);
    judged
}
