//! A member and a producer of that cluster, which fail when they are told to.

use super::faults::{Call, Faults, Kind};
use super::log::{Log, Place, Position, Record, Refusal, headers};
use pagesieve::batch::{Delivery, ReceivedBatch};
use pagesieve::index::Origin;
use pagesieve::transport::Fault;
use pagesieve::transport::kafka::Partitions;
use pagesieve::transport::kafka::link::Link;
use pagesieve::transport::kafka::protocol::{Failure, Meaning, Member, Message, Offsets, Publisher};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a process and its clients share with the world.
pub struct Shared {
    pub log: Log,
    pub faults: Faults,
    /// Virtual milliseconds since the start.
    pub now_ms: u64,
    /// Pages that the broker refuses for their size, though they look right.
    pub refused: BTreeSet<Position>,
    /// How often each page was received.
    pub received: BTreeMap<Position, u32>,
    /// A commit without an answer counts as one that went through: rule 6, switched off.
    pub trust_doubtful_commits: bool,
    /// Says what happens, for whoever looks into one run.
    pub is_told: bool,
}

impl Shared {
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>7} ms  {}", self.now_ms, what());
        }
    }
}

/// The world, as everyone in it sees it.
pub type World = Arc<Mutex<Shared>>;

/// Time, as `now_ms` counts it.
pub fn instant(now_ms: u64) -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_millis(now_ms)
}

/// One life of a daemon.
#[derive(Clone)]
pub struct Identity {
    pub instance: String,
    /// Another number for every process.
    pub process: u64,
    pub exactly_once: bool,
    killed: Arc<AtomicBool>,
    asleep: Arc<AtomicBool>,
}

impl Identity {
    pub fn new(instance: &str, process: u64, exactly_once: bool) -> Self {
        let (killed, asleep) = Default::default();
        Self { instance: instance.to_owned(), process, exactly_once, killed, asleep }
    }

    /// From now on nothing that it does has any effect.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// SIGSTOP, or SIGCONT.
    pub fn sleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}

fn failure(meaning: Meaning, reason: &str) -> Failure {
    Failure { meaning, reason: reason.to_owned() }
}

fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Fenced => failure(Meaning::Fenced, "fenced"),
        Refusal::IllegalGeneration => failure(Meaning::Abortable, "illegal generation"),
        Refusal::Unstable => failure(Meaning::Unknown, "unstable offsets"),
    }
}

/// What both clients do before and after a call.
#[derive(Clone)]
struct Caller {
    world: World,
    identity: Identity,
}

/// What was planned to go wrong with a call, beside a crash.
type Planned = Option<Kind>;

impl Caller {
    fn world(&self) -> MutexGuard<'_, Shared> {
        self.world.lock().expect("one thread")
    }

    fn member(&self) -> (&str, u64) {
        (&self.identity.instance, self.identity.process)
    }

    /// Makes a call: it may be the process's last, before or after it takes effect.
    fn call<T>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut Shared, Planned) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let dead = || failure(Meaning::Permanent, "killed");
        if self.identity.is_killed() {
            return Err(dead());
        }
        let mut world = self.world();
        let planned = world.faults.strike(call);
        if planned.is_some() || !matches!(call, Call::Poll | Call::Send) {
            world.tell(|| {
                format!(
                    "process {} {call:?} {}",
                    self.identity.process,
                    planned.map_or(String::new(), |kind| format!("{kind:?}"))
                )
            });
        }
        if planned == Some(Kind::KillBefore) {
            self.identity.kill();
            return Err(dead());
        }
        let result = effect(&mut world, planned);
        if planned == Some(Kind::KillAfter) {
            self.identity.kill();
            return Err(dead());
        }
        result
    }
}

/// A member of the group.
pub struct SimMember {
    caller: Caller,
    partitions: Partitions,
    link: Arc<Link>,
    state: Mutex<Reading>,
}

#[derive(Default)]
struct Reading {
    /// What the member believes to hold, and where it reads.
    positions: BTreeMap<Place, u64>,
    /// Its session ended without its knowing.
    lost: bool,
}

impl SimMember {
    pub fn new(world: World, identity: Identity, partitions: Partitions, link: Arc<Link>) -> Self {
        Self { caller: Caller { world, identity }, partitions, link, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Reading> {
        self.state.lock().expect("one thread")
    }

    /// The partitions that it believes to hold.
    pub fn believes(&self) -> BTreeSet<Place> {
        self.state().positions.keys().cloned().collect()
    }

    /// The group takes partitions away.
    pub fn revoke(&self, places: &BTreeSet<Place>, in_time: bool) {
        self.caller
            .world()
            .tell(|| format!("process {} loses {places:?}, in time: {in_time}", self.caller.identity.process));
        self.state().positions.retain(|place, _| !places.contains(place));
        self.link.revoke(places.iter().cloned().collect(), in_time);
    }

    /// The group gives partitions.
    pub fn assign(&self, places: &BTreeSet<Place>) {
        for place in places {
            let world = self.caller.world();
            let committed = world.log.committed(place);
            world.tell(|| format!("process {} gets {place:?} from {committed:?}", self.caller.identity.process));
            drop(world);
            // What another member has under way there is settled before it gives the partition away, or times out.
            let at = committed.expect("nothing is pending in a partition that is given").unwrap_or(0);
            self.state().positions.insert(place.clone(), at);
        }
        self.link.assign(places.iter().cloned().collect());
    }

    /// Has its session ended without its knowing?
    pub fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Its session has ended; it learns of it when it polls.
    pub fn lose(&self) {
        self.state().lost = true;
    }

    fn place(&self, number: u16) -> Place {
        let (topic, partition) = self.partitions.name(number);
        (topic.to_string(), partition)
    }

    fn named(&self, offsets: &Offsets) -> BTreeMap<Place, u64> {
        offsets.iter().map(|(number, offset)| (self.place(*number), *offset)).collect()
    }
}

impl Member for SimMember {
    fn poll(&self, _: Duration, batch: &mut ReceivedBatch) -> Result<bool, Fault> {
        if std::mem::take(&mut self.state().lost) {
            let all = self.believes();
            self.revoke(&all, false);
        }
        let holder = self.caller.world().log.holder(&self.caller.identity.instance);
        if holder.is_some_and(|holder| holder != self.caller.identity.process) {
            return Err(Fault::Fatal("fenced: another process has the instance".into()));
        }
        let polled = self.caller.call(Call::Poll, |world, planned| {
            if planned == Some(Kind::PollFails) {
                return Ok(None);
            }
            let mut state = self.state();
            let ready = state.positions.iter().filter(|(place, at)| **at < world.log.end(place));
            let ready = ready.map(|(place, _)| place.clone()).collect::<Vec<_>>();
            // Partitions overtake each other, and sometimes there is nothing for a while.
            let pick = world.faults.random.below(ready.len() * 8 + 1);
            let Some(place) = ready.get(pick / 8) else { return Ok(None) };
            let at = state.positions.get_mut(place).expect("it is one of them");
            let record = world.log.record(place, *at).expect("it is before the end").clone();
            *at += 1;
            let position = (place.0.clone(), place.1, *at - 1);
            *world.received.entry(position.clone()).or_default() += 1;
            world.tell(|| format!("process {} receives {position:?}", self.caller.identity.process));
            Ok(Some((position, record)))
        });
        let Some(((topic, partition, offset), record)) = polled.map_err(|failure| Fault::Fatal(failure.reason))? else {
            return Ok(false);
        };
        let source = self.partitions.number(&topic, partition).expect("few partitions");
        let first_header = batch.headers.len();
        for (name, value) in &record.headers {
            let name = batch.push(name.as_bytes());
            let value = value.as_ref().map(|value| batch.push(value));
            batch.headers.push((name, value));
        }
        let key = record.key.as_ref().map(|key| batch.push(key));
        let value = record.value.as_ref().map(|value| batch.push(value));
        batch.deliveries.push(Delivery {
            origin: Origin { source, offset },
            value,
            cut_from: None,
            key,
            headers: first_header..batch.headers.len(),
            timestamp_ms: record.timestamp_ms,
        });
        Ok(true)
    }

    fn assignment(&self) -> Result<Vec<u16>, Failure> {
        let number = |(topic, partition): &Place| self.partitions.number(topic, *partition).expect("few partitions");
        Ok(self.state().positions.keys().map(number).collect())
    }

    fn committed(&self, partitions: &[u16]) -> Result<Vec<Option<u64>>, Failure> {
        self.caller.call(Call::Committed, |world, planned| {
            if planned == Some(Kind::CommittedFails) {
                return Err(failure(Meaning::Unknown, "timed out"));
            }
            partitions.iter().map(|number| world.log.committed(&self.place(*number)).map_err(refused)).collect()
        })
    }

    fn first_offset(&self, _: u16) -> Result<u64, Failure> {
        Ok(0)
    }

    fn seek(&self, targets: &[(u16, Option<u64>)]) -> Result<(), Failure> {
        self.caller.call(Call::Seek, |_, planned| {
            if planned == Some(Kind::SeekFails) {
                return Err(failure(Meaning::Unknown, "timed out"));
            }
            let mut state = self.state();
            for (number, target) in targets {
                let at = state.positions.get_mut(&self.place(*number));
                *at.ok_or_else(|| failure(Meaning::Unknown, "not assigned"))? = target.unwrap_or(0);
            }
            Ok(())
        })
    }

    fn pause(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn resume(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn commit(&self, offsets: &Offsets) -> Result<(), Failure> {
        self.caller.call(Call::CommitOffsets, |world, planned| {
            let lost = failure(Meaning::Unknown, "timed out");
            if planned == Some(Kind::DoubtfulUndone) {
                return Err(lost);
            }
            let offsets = self.named(offsets);
            world.tell(|| format!("process {} commits {offsets:?}", self.caller.identity.process));
            world.log.commit_offsets(self.caller.member(), offsets).map_err(refused)?;
            if planned == Some(Kind::DoubtfulDone) { Err(lost) } else { Ok(()) }
        })
    }
}

/// A message on its way from the client to the cluster.
struct Queued {
    record: Record,
    number: u64,
    of: Position,
    /// The page that it is a copy of, if it goes out whole.
    forwards: bool,
}

/// A producer.
pub struct SimPublisher {
    caller: Caller,
    member: Arc<SimMember>,
    output: String,
    state: Mutex<Producing>,
}

#[derive(Default)]
struct Producing {
    epoch: u32,
    num_sent: u64,
    queues: BTreeMap<Place, VecDeque<Queued>>,
    failed: Vec<(Origin, Failure)>,
    /// A delivery failed, or the coordinator said so: only an abort helps.
    must_abort: bool,
    /// The last commit gets no answer, until the producer starts over.
    mute: bool,
    fenced: bool,
}

impl SimPublisher {
    /// A producer that is ready; `Err` if the process was killed on the way.
    pub fn open(member: Arc<SimMember>, output: &str) -> Result<Self, Fault> {
        let mut publisher =
            Self { caller: member.caller.clone(), member, output: output.to_owned(), state: Mutex::default() };
        publisher.reopen()?;
        Ok(publisher)
    }

    fn state(&self) -> MutexGuard<'_, Producing> {
        self.state.lock().expect("one thread")
    }

    fn name(&self) -> &str {
        &self.caller.identity.instance
    }

    /// Lets queued messages arrive: all of them, or as many as come through before something else happens.
    fn deliver(&self, world: &mut Shared, all: bool) {
        let mut state = self.state();
        let Producing { epoch, queues, failed, must_abort, fenced, .. } = &mut *state;
        for (place, queue) in queues {
            let count = if all { queue.len() } else { world.faults.random.below(queue.len() + 1) };
            let batch = queue.drain(..count).collect::<Vec<_>>();
            // One message that the topic does not take has all of its batch refused.
            let is_refused = batch.iter().any(|queued| queued.forwards && world.refused.contains(&queued.of));
            for Queued { record, number, of, .. } in batch {
                if is_refused {
                    let source = self.member.partitions.number(&of.0, of.1).expect("few partitions");
                    failed.push((Origin { source, offset: of.2 }, failure(Meaning::Refused, "message too large")));
                    *must_abort |= self.caller.identity.exactly_once;
                } else if !self.caller.identity.exactly_once {
                    world.log.append(place, record);
                } else if !*must_abort {
                    let appended = world.log.append_open((self.name(), *epoch), place, record, (number, of));
                    *fenced |= appended.is_err();
                }
            }
        }
    }
}

impl Publisher for SimPublisher {
    fn reopen(&mut self) -> Result<(), Fault> {
        let opened = self.caller.call(Call::Reopen, |world, planned| {
            if planned == Some(Kind::ReopenFails) {
                return Err(failure(Meaning::Retriable, "cannot initialise transactions in time"));
            }
            // What was in flight may have come through.
            self.deliver(world, false);
            let epoch = if self.caller.identity.exactly_once { world.log.initialise(self.name()) } else { 0 };
            *self.state() = Producing { epoch, ..Producing::default() };
            Ok(())
        });
        opened.map_err(|failure| match failure.meaning {
            Meaning::Retriable => Fault::Aborted(failure.reason),
            _ => Fault::Fatal(failure.reason),
        })
    }

    fn begin(&self) -> Result<(), Failure> {
        self.caller.call(Call::Begin, |_, planned| match planned {
            Some(Kind::BeginFails) => Err(failure(Meaning::Abortable, "an earlier failure")),
            _ => Ok(()),
        })
    }

    fn send<'a>(&self, message: Message<'a>, origin: Origin) -> Result<(), (Failure, Message<'a>)> {
        let sent = self.caller.call(Call::Send, |world, planned| {
            if planned == Some(Kind::QueueFull) {
                return Err(failure(Meaning::Full, "queue full"));
            }
            if planned == Some(Kind::DeliveryFails) && self.caller.identity.exactly_once {
                let mut state = self.state();
                state.must_abort = true;
                state.failed.push((origin, failure(Meaning::Unknown, "message timed out")));
                return Ok(());
            }
            let (topic, partition) = self.member.partitions.name(origin.source);
            let of = (topic.to_string(), partition, origin.offset);
            let forwards = message.topic == self.output;
            if planned == Some(Kind::RefusedForSize) && forwards {
                world.refused.insert(of.clone());
            }
            let record = Record {
                key: message.key.map(<[u8]>::to_vec),
                value: message.value.map(<[u8]>::to_vec),
                timestamp_ms: message.timestamp_ms,
                headers: headers(message.headers.as_ref()),
            };
            let place = (message.topic.to_owned(), message.partition.unwrap_or(0));
            world.tell(|| format!("process {} sends {of:?} to {place:?}", self.caller.identity.process));
            let mut state = self.state();
            state.num_sent += 1;
            let queued = Queued { record, number: state.num_sent, of, forwards };
            state.queues.entry(place).or_default().push_back(queued);
            drop(state);
            if world.faults.random.below(8) == 0 {
                self.deliver(world, false);
            }
            Ok(())
        });
        sent.map_err(|failure| (failure, message))
    }

    fn flush(&self, _: Duration) -> bool {
        let flushed = self.caller.call(Call::Flush, |world, planned| {
            self.deliver(world, planned != Some(Kind::FlushSlow));
            Ok(planned != Some(Kind::FlushSlow))
        });
        flushed.unwrap_or(false)
    }

    fn take_failed(&self) -> Vec<(Origin, Failure)> {
        std::mem::take(&mut self.state().failed)
    }

    fn broken(&self) -> Option<String> {
        if self.caller.identity.is_killed() {
            return Some("killed".into());
        }
        self.state().fenced.then(|| "fenced".into())
    }

    fn send_offsets(&self, offsets: &Offsets) -> Result<(), Failure> {
        self.caller.call(Call::SendOffsets, |world, planned| {
            if planned == Some(Kind::OffsetsAbort) || self.state().must_abort {
                return Err(failure(Meaning::Abortable, "abort required"));
            }
            if planned == Some(Kind::OffsetsRetryUndone) {
                return Err(failure(Meaning::Retriable, "timed out"));
            }
            let (epoch, offsets) = (self.state().epoch, self.member.named(offsets));
            world.tell(|| format!("process {} adds {offsets:?}", self.caller.identity.process));
            let added = world.log.add_offsets(self.name(), epoch, self.caller.member(), offsets);
            added.map_err(refused)?;
            match planned {
                Some(Kind::OffsetsRetryDone) => Err(failure(Meaning::Retriable, "timed out")),
                _ => Ok(()),
            }
        })
    }

    fn commit(&self) -> Result<(), Failure> {
        let doubtful = |world: &Shared| match world.trust_doubtful_commits {
            true => Ok(()),
            false => Err(failure(Meaning::Retriable, "timed out")),
        };
        self.caller.call(Call::Commit, |world, planned| {
            if self.state().mute {
                return doubtful(world);
            }
            self.deliver(world, true);
            if planned == Some(Kind::CommitAborts) || self.state().must_abort {
                return Err(failure(Meaning::Abortable, "abort required"));
            }
            if matches!(planned, Some(Kind::DoubtfulDone | Kind::DoubtfulUndone)) {
                self.state().mute = true;
            }
            if planned == Some(Kind::DoubtfulUndone) {
                return doubtful(world);
            }
            if planned == Some(Kind::CommitRetryUndone) {
                return Err(failure(Meaning::Retriable, "timed out"));
            }
            let epoch = self.state().epoch;
            world.log.end_transaction(self.name(), epoch, true).map_err(refused)?;
            match planned {
                Some(Kind::DoubtfulDone) => doubtful(world),
                Some(Kind::CommitRetryDone) => Err(failure(Meaning::Retriable, "timed out")),
                _ => Ok(()),
            }
        })
    }

    fn abort(&self) -> Result<(), Failure> {
        self.caller.call(Call::Abort, |world, planned| {
            if planned == Some(Kind::AbortFails) {
                return Err(failure(Meaning::Unknown, "timed out"));
            }
            let epoch = self.state().epoch;
            world.log.end_transaction(self.name(), epoch, false).map_err(refused)
        })
    }

    fn now(&self) -> Instant {
        instant(self.caller.world().now_ms)
    }

    fn wait(&self, time: Duration) {
        self.caller.world().now_ms += time.as_millis() as u64;
    }
}
