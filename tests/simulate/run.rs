//! One run: a seed makes pages, processes and faults, and the oracle looks at what came of it.

use super::clients::{Identity, Shared, World};
use super::faults::{Faults, Kind};
use super::log::{Log, Place, Position};
use super::oracle::{Verdicts, judge};
use super::pages::{Page, Pages};
use super::process::{Process, State};
use super::text::Random;
use super::{Broken, Scene};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Steps after which a run that is not done never will be.
const MAX_STEPS: u64 = 100_000;

/// Faults of every run.
const FEWEST_FAULTS: u64 = 5;

/// Steps that a daemon is down for, at most.
const DOWN_STEPS: usize = 60;

/// One daemon's place in the world: it is started again whenever it ends.
struct Seat {
    instance: String,
    process: Option<Process>,
    /// Processes of the same name that were stopped and will wake up.
    asleep: Vec<Process>,
    start_at: u64,
    /// Not started again.
    closed: bool,
}

/// What came of a run.
pub struct Report {
    pub pages: u64,
    pub partitions: usize,
    pub struck: BTreeMap<Kind, u64>,
    pub verdicts: Verdicts,
    /// What is wrong; nothing, if all is well.
    pub violations: Vec<String>,
}

struct Run {
    scene: Scene,
    world: World,
    random: Random,
    seats: Vec<Seat>,
    /// A change of the group that has to wait, and whether it can.
    rebalance: Option<bool>,
    pages: Pages,
    sent: BTreeMap<Position, Page>,
    to_send: u64,
    num_pages: u64,
    num_processes: u64,
    step: u64,
    /// The sink takes nothing until this step.
    slow_until: u64,
    /// Stopped processes wake up at these steps.
    wake_at: Vec<u64>,
}

/// Runs a seed.
pub fn run(seed: u64, broken: Option<Broken>) -> Report {
    let mut random = Random(seed);
    let scene = Scene::new(&mut random, broken);
    let pages = 500 + random.below(200) as u64;
    let topic = scene.config.input.topics[0].clone();
    let mut log = Log::default();
    (0..scene.partitions).for_each(|partition| log.create(&topic, partition));
    let output = &scene.config.output;
    for topic in
        [Some(&output.topic), output.verdict_topic.as_ref(), Some(&output.dead_letter_topic), Some(&output.state_topic)]
    {
        // As many as there may ever be in the input.
        (0..scene.partitions + 16).for_each(|partition| log.create(topic.expect("it is set"), partition));
    }
    let faults = Faults::plan(Random(random.next()), pages, scene.exactly_once);
    let shared = Shared {
        log,
        faults,
        now_ms: 0,
        refused: BTreeSet::new(),
        received: BTreeMap::new(),
        trust_doubtful_commits: broken == Some(Broken::DoubtTrusted),
        is_told: std::env::var_os("SEED").is_some(),
    };
    let seats = (0..scene.members).map(|number| Seat {
        instance: format!("instance-{number}"),
        process: None,
        asleep: Vec::new(),
        start_at: 0,
        closed: false,
    });
    let mut run = Run {
        seats: seats.collect(),
        scene,
        world: Arc::new(Mutex::new(shared)),
        pages: Pages::new(Random(random.next())),
        random,
        rebalance: None,
        sent: BTreeMap::new(),
        to_send: pages,
        num_pages: pages,
        num_processes: 0,
        step: 0,
        slow_until: 0,
        wake_at: Vec::new(),
    };
    let mut violations = run.fly();
    let mut world = run.world.lock().expect("one thread");
    world.log.settle_all();
    let verdicts = judge(&run.scene, &world, &run.sent, &mut violations);
    let partitions = world.log.partitions(&topic).len();
    Report { pages: run.num_pages, partitions, struck: world.faults.struck.clone(), verdicts, violations }
}

impl Run {
    /// Until every page has met its fate and every fault has struck.
    fn fly(&mut self) -> Vec<String> {
        let topic = self.scene.config.input.topics[0].clone();
        while self.step < MAX_STEPS {
            self.step += 1;
            let struck = {
                let mut world = self.world.lock().expect("one thread");
                world.now_ms += self.random.below(20) as u64;
                world.faults.progress = world.log.num_committed(&topic);
                world.faults.strike_world()
            };
            if self.to_send > 0 && self.random.below(3) == 0 {
                self.send(&topic);
            }
            if let Some(kind) = struck {
                self.world.lock().expect("one thread").tell(|| format!("{kind:?}"));
                self.strike(kind, &topic);
            }
            self.start_and_wake();
            if let Some(in_haste) = self.rebalance.take() {
                self.balance(in_haste, &topic);
            }
            let at = self.random.below(self.seats.len());
            let choice = self.random.below(if self.step < self.slow_until { 3 } else { 4 });
            let seat = &mut self.seats[at];
            seat.process.iter_mut().chain(&mut seat.asleep).for_each(|process| {
                // A stopped process does nothing.
                if !process.identity.is_asleep() {
                    process.step(choice);
                }
            });
            let all_awake = self.wake_at.is_empty() && self.seats.iter().all(|seat| seat.asleep.is_empty());
            let mut world = self.world.lock().expect("one thread");
            if self.to_send == 0 && all_awake && world.log.is_drained(&topic) {
                if world.faults.num_struck() >= FEWEST_FAULTS {
                    return Vec::new();
                }
                // What was planned found no occasion.
                world.faults.arm(Kind::Kill);
                self.to_send = 20;
                self.num_pages += 20;
            }
        }
        vec![format!("not done after {MAX_STEPS} steps")]
    }

    fn send(&mut self, topic: &str) {
        let page = self.pages.next();
        let mut world = self.world.lock().expect("one thread");
        let places = world.log.partitions(topic);
        let place = &places[self.random.below(places.len())];
        let offset = world.log.append(place, page.record.clone());
        self.sent.insert((place.0.clone(), place.1, offset), page);
        self.to_send -= 1;
    }

    fn strike(&mut self, kind: Kind, topic: &str) {
        let at = self.random.below(self.seats.len());
        let down = self.random.below(DOWN_STEPS) as u64;
        let seat = &mut self.seats[at];
        match kind {
            Kind::Kill => {
                seat.process.iter().for_each(|process| process.identity.kill());
                seat.process.iter_mut().for_each(|process| process.state = State::Ended);
            }
            Kind::Terminate => {
                if let Some(process) = &mut seat.process {
                    process.drain();
                    process.state = State::Ended;
                }
            }
            Kind::Zombie | Kind::Asleep => {
                if let Some(process) = seat.process.take() {
                    process.identity.sleep(true);
                    if kind == Kind::Zombie {
                        seat.asleep.push(process);
                        seat.start_at = self.step + down;
                    } else {
                        // Its session ends: the group goes on without it.
                        process.member.lose();
                        self.world.lock().expect("one thread").log.leave(&seat.instance);
                        seat.process = Some(process);
                        self.rebalance = Some(true);
                    }
                    self.wake_at.push(self.step + 20 + 4 * down);
                }
            }
            Kind::Rebalance | Kind::RebalanceInHaste => {
                let second = self.seats.len() > 1 && self.random.below(2) == 0;
                if second {
                    let seat = self.seats.last_mut().expect("there are two");
                    seat.closed = !seat.closed;
                    if seat.closed {
                        if let Some(process) = &mut seat.process {
                            process.drain();
                            process.state = State::Ended;
                        }
                        self.world.lock().expect("one thread").log.leave(&seat.instance);
                    }
                } else if self.seats.len() < 3 {
                    let instance = format!("instance-{}", self.seats.len());
                    let seat = Seat { instance, process: None, asleep: Vec::new(), start_at: 0, closed: false };
                    self.seats.push(seat);
                }
                self.rebalance = Some(kind == Kind::RebalanceInHaste);
            }
            Kind::PartitionAdded => {
                let mut world = self.world.lock().expect("one thread");
                let count = world.log.partitions(topic).len();
                world.log.create(topic, count as i32);
                self.rebalance = Some(false);
            }
            Kind::ClockStep => {
                let days = if self.random.below(2) == 0 { 1 } else { -1 };
                self.pages.step_clock(days * 86_400);
            }
            Kind::SlowSink => self.slow_until = self.step + 200,
            Kind::TransactionTimesOut => {
                let instance = seat.instance.clone();
                self.world.lock().expect("one thread").log.time_out(&instance);
            }
            _ => unreachable!("{kind:?} happens to calls"),
        }
    }

    fn start_and_wake(&mut self) {
        let step = self.step;
        let waking = self.wake_at.iter().any(|at| *at <= step);
        self.wake_at.retain(|at| *at > step);
        for seat in &mut self.seats {
            if waking {
                // Whoever was thought gone wants to be a member again.
                self.rebalance.get_or_insert(false);
                seat.process.iter().chain(&seat.asleep).for_each(|process| process.identity.sleep(false));
                if seat.process.is_none() {
                    // If nobody took its name meanwhile, it goes on.
                    let holder = self.world.lock().expect("one thread").log.holder(&seat.instance);
                    let is_free = |it: &mut Process| holder.is_none_or(|holder| holder == it.identity.process);
                    seat.process = seat.asleep.pop_if(is_free);
                }
            }
            seat.asleep.retain(|process| process.state != State::Ended && !seat.closed);
            if seat.process.as_ref().is_some_and(|process| process.state == State::Ended) {
                seat.process = None;
                seat.start_at = step + self.random.below(DOWN_STEPS) as u64;
            }
            if seat.process.is_none() && !seat.closed && seat.start_at <= step {
                self.num_processes += 1;
                let identity = Identity::new(&seat.instance, self.num_processes, self.scene.exactly_once);
                seat.process = Process::start(&self.scene, identity, self.world.clone());
                let Some(process) = &seat.process else { continue };
                let mut world = self.world.lock().expect("one thread");
                let is_new = world.log.holder(&seat.instance).is_none();
                world.log.join(&seat.instance, process.identity.process);
                let held = world.log.held(&seat.instance);
                drop(world);
                // A static member gets back what it held, without a rebalance.
                process.assign(&held);
                if is_new {
                    self.rebalance.get_or_insert(false);
                }
            }
        }
    }

    /// Spreads the partitions over the members, which give up what they lose first.
    fn balance(&mut self, in_haste: bool, topic: &str) {
        let (places, instances) = {
            let mut world = self.world.lock().expect("one thread");
            for seat in self.seats.iter().filter(|seat| !seat.closed) {
                // One whose session had ended comes back.
                if let Some(process) = seat.process.as_ref().filter(|it| !it.identity.is_asleep()) {
                    world.log.join(&seat.instance, process.identity.process);
                }
            }
            (world.log.partitions(topic), world.log.instances())
        };
        let mut wanted: BTreeMap<&str, BTreeSet<Place>> = BTreeMap::new();
        if instances.is_empty() {
            return;
        }
        for (number, place) in places.into_iter().enumerate() {
            wanted.entry(&instances[number % instances.len()]).or_default().insert(place);
        }
        for seat in &mut self.seats {
            let Some(process) = &mut seat.process else { continue };
            let wanted = wanted.get(&*seat.instance).cloned().unwrap_or_default();
            let lost = process.member.believes().difference(&wanted).cloned().collect::<BTreeSet<_>>();
            if process.identity.is_asleep() {
                continue;
            }
            if process.state == State::Aborted || process.member.is_lost() {
                // It learns of it when it polls again.
                self.rebalance = Some(in_haste);
                return;
            }
            if lost.is_empty() {
                continue;
            }
            if in_haste {
                (0..self.random.below(12)).for_each(|_| process.step_without_receiving(self.random.below(3)));
            } else {
                process.drain();
            }
            if process.state != State::Ended {
                let in_time = process.state == State::Flying && process.link.is_drained();
                process.member.revoke(&lost, in_time && !process.link.has_failed());
            }
            let held = &self.world.lock().expect("one thread").log.held(&seat.instance) - &lost;
            if self.world.lock().expect("one thread").log.holder(&seat.instance).is_some() {
                self.world.lock().expect("one thread").log.assign(&seat.instance, held);
            }
        }
        for seat in &self.seats {
            let wanted = wanted.get(&*seat.instance).cloned().unwrap_or_default();
            let mut world = self.world.lock().expect("one thread");
            if world.log.holder(&seat.instance).is_none() {
                continue;
            }
            world.log.assign(&seat.instance, wanted.clone());
            wanted.iter().for_each(|place| world.log.settle_pending(place));
            drop(world);
            let awake = seat.process.as_ref().filter(|it| it.state != State::Ended && !it.identity.is_asleep());
            if let Some(process) = awake {
                process.assign(&(&wanted - &process.member.believes()));
            }
        }
    }
}
