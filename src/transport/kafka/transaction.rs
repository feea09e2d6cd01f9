//! Rules 2, 3 and 6 of delivery: what goes out together with which offsets, what a failure means for it, and how what
//! is not known is found out.
//!
//! ```text
//!            begin        send …      commit: flush ▸ offsets ▸ commit
//! (nothing) ───────▶ open ──────▶ open ───────────────────────────────▶ (nothing)
//!     ▲               │ failure                          │ no answer
//!     │               ▼                                  ▼
//!     └─ settle ◀── open: abort, start over      in doubt: start over, ask the group what it has
//! ```
//!
//! With `at_least_once` there is no transaction but the same steps, and an order in its place: offsets after outcomes,
//! and pages are said to be remembered only after the outcomes that emitted them.

use super::link::Link;
use super::protocol::{Failure, Meaning, Member, Message, Offsets, Publisher};
use crate::config::{Delivery as Guarantee, Kafka};
use crate::crash_point;
use crate::index::Origin;
use crate::transport::Fault;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RETRY_AFTER: Duration = Duration::from_millis(50);

/// How long to wait for a place in the client's queue: that is the back-pressure.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// State records that wait for their pages; behind so many the pages are waited for at once.
const HELD_BYTES: usize = 8 << 20;

/// How often a flush looks whether something failed.
const FLUSH_STEP: Duration = Duration::from_millis(500);

/// Pages that the broker refused though they looked right, and why: rejected when they are judged again.
#[derive(Debug, Clone, Default)]
pub struct Refused {
    any: Arc<AtomicBool>,
    pages: Arc<Mutex<HashMap<Origin, String>>>,
}

impl Refused {
    fn add(&self, origin: Origin, reason: &str) {
        self.pages.lock().expect("nobody panics with the lock").insert(origin, reason.to_owned());
        self.any.store(true, Ordering::Release);
    }

    /// These have met their fate and will not come again.
    fn forget(&self, committed: &Offsets) {
        if self.any.load(Ordering::Acquire) {
            let mut pages = self.pages.lock().expect("nobody panics with the lock");
            pages.retain(|origin, _| committed.get(&origin.source).is_none_or(|next| origin.offset >= *next));
            self.any.store(!pages.is_empty(), Ordering::Release);
        }
    }

    /// Why it was refused, if it was.
    pub fn reason(&self, origin: Origin) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.pages.lock().expect("nobody panics with the lock").get(&origin).cloned()
    }
}

/// How the last transaction ended, as far as the cluster knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Nothing of it is to be seen by anyone.
    Undone,
    /// It went through after all.
    Committed,
}

/// The transactions of one process, one after the other.
pub struct Transactions<P, M> {
    publisher: P,
    member: Arc<M>,
    link: Arc<Link>,
    settings: Kafka,
    state_topic: String,
    refused: Refused,
    /// Pages whose messages were refused, perhaps for another's in their batch: which it was is found out by sending
    /// each alone.
    suspects: RefCell<HashSet<Origin>>,
    open: bool,
    /// Next offset of each partition in the open transaction.
    offsets: Offsets,
    /// Batches in the open transaction.
    batches: u64,
    /// State records that wait until the pages they speak of are acknowledged, one behind the other; where each ends.
    held: Vec<u8>,
    held_ends: Vec<(usize, Origin)>,
    /// Offsets of a commit whose outcome is not known.
    in_doubt: Option<Offsets>,
}

/// Is it known that a call did not take effect?
enum Outcome {
    Known(Fault),
    Doubtful(Fault),
}

impl From<Outcome> for Fault {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Known(fault) | Outcome::Doubtful(fault) => fault,
        }
    }
}

impl<P: Publisher, M: Member> Transactions<P, M> {
    /// No transaction yet.
    pub fn new(publisher: P, (member, link): (Arc<M>, Arc<Link>), settings: Kafka, state_topic: String) -> Self {
        Self {
            publisher,
            member,
            link,
            settings,
            state_topic,
            refused: Refused::default(),
            suspects: RefCell::default(),
            open: false,
            offsets: Offsets::new(),
            batches: 0,
            held: Vec::new(),
            held_ends: Vec::new(),
            in_doubt: None,
        }
    }

    /// Pages that were refused so far, and those to come.
    pub fn refused(&self) -> Refused {
        self.refused.clone()
    }

    /// Is one open?
    pub fn is_open(&self) -> bool {
        self.open
    }

    fn exactly_once(&self) -> bool {
        matches!(self.settings.delivery, Guarantee::ExactlyOnce)
    }

    /// Opens a transaction, unless one is open.
    pub fn begin(&mut self) -> Result<(), Fault> {
        self.look_for_loss()?;
        if self.open {
            return Ok(());
        }
        if self.exactly_once() {
            self.publisher.begin().map_err(|failure| self.fault("begin a transaction", &failure))?;
        }
        self.open = true;
        Ok(())
    }

    /// Sends a message, waiting for its place.
    pub fn send(&self, message: Message, origin: Origin) -> Result<(), Fault> {
        if !self.suspects.borrow().contains(&origin) {
            return self.queue(message, origin);
        }
        self.flush()?;
        self.queue(message, origin)?;
        self.flush()?;
        self.suspects.borrow_mut().remove(&origin);
        Ok(())
    }

    fn queue(&self, mut message: Message, origin: Origin) -> Result<(), Fault> {
        loop {
            let Err((failure, returned)) = self.publisher.send(message, origin) else { return Ok(()) };
            match failure.meaning {
                Meaning::Full => {
                    message = returned;
                    self.look_for_failures()?;
                    self.publisher.wait(FULL_WAIT);
                }
                Meaning::Refused => {
                    self.refused.add(origin, &failure.reason);
                    return Err(Fault::Aborted(format!("a message is refused; judging again without it: {failure}")));
                }
                _ => return Err(self.fault("produce", &failure)),
            }
        }
    }

    /// Sends a state record of this page. With `at_least_once` it goes out behind what it speaks of: a page that a
    /// restart remembers has been emitted, even if its offset was never committed and it is judged otherwise the next
    /// time.
    pub fn send_state(&mut self, record: &[u8], origin: Origin) -> Result<(), Fault> {
        if self.exactly_once() {
            return self.send_state_now(record, origin);
        }
        self.held.extend_from_slice(record);
        self.held_ends.push((self.held.len(), origin));
        if self.held.len() < HELD_BYTES { Ok(()) } else { self.release() }
    }

    /// Sends the state records that were held, once everything before them is acknowledged.
    fn release(&mut self) -> Result<(), Fault> {
        self.flush()?;
        let mut start = 0;
        for (end, origin) in &self.held_ends {
            self.send_state_now(&self.held[start..*end], *origin)?;
            start = *end;
        }
        self.held.clear();
        self.held_ends.clear();
        Ok(())
    }

    fn send_state_now(&self, record: &[u8], origin: Origin) -> Result<(), Fault> {
        let message =
            Message { topic: &self.state_topic, partition: Some(0), value: Some(record), ..Message::default() };
        self.send(message, origin)
    }

    /// Everything of this page has been sent.
    pub fn page_sent(&mut self, origin: Origin) {
        self.offsets.insert(origin.source, origin.offset + 1);
    }

    /// Everything of a batch has been sent.
    pub fn batch_sent(&mut self) -> Result<(), Fault> {
        self.batches += 1;
        self.look_for_failures()
    }

    /// Makes all of it final.
    pub fn commit(&mut self) -> Result<(), Fault> {
        if self.exactly_once() {
            self.commit_transaction()?
        } else {
            self.commit_offsets()?
        }
        self.refused.forget(&self.offsets);
        self.suspects.get_mut().retain(|page| self.offsets.get(&page.source).is_none_or(|next| page.offset >= *next));
        self.link.committed(self.batches);
        self.clear();
        Ok(())
    }

    /// After a fault: settles what was open and starts over.
    pub fn settle(&mut self) -> Result<Settled, Fault> {
        if self.open && self.in_doubt.is_none() && self.exactly_once() {
            // The polite way; a new producer settles it too.
            let _ = self.publisher.abort();
        }
        // What failed meanwhile may name a page to be refused.
        let _ = self.look_for_failures();
        self.publisher.reopen()?;
        self.clear();
        let Some(doubtful) = self.in_doubt.clone() else { return Ok(Settled::Undone) };
        let partitions = doubtful.keys().copied().collect::<Vec<_>>();
        let committed = self
            .member
            .committed(&partitions)
            .map_err(|failure| Fault::Aborted(format!("cannot read committed offsets: {failure}")))?;
        self.in_doubt = None;
        let moved = committed.iter().zip(doubtful.values()).all(|(is, wanted)| is.is_some_and(|is| is >= *wanted));
        tracing::info!(committed = moved, "settled a commit whose outcome was not known");
        Ok(if moved { Settled::Committed } else { Settled::Undone })
    }

    fn clear(&mut self) {
        self.open = false;
        self.batches = 0;
        self.offsets.clear();
        self.held.clear();
        self.held_ends.clear();
    }

    fn look_for_loss(&self) -> Result<(), Fault> {
        if self.link.is_lost() {
            return Err(Fault::Aborted("partitions were lost before their pages were committed".into()));
        }
        Ok(())
    }

    /// Turns failed delivery reports into a fault.
    fn look_for_failures(&self) -> Result<(), Fault> {
        if let Some(reason) = self.publisher.broken() {
            return Err(Fault::Fatal(reason));
        }
        self.look_for_loss()?;
        let failed = self.publisher.take_failed();
        let Some((origin, first)) = failed.first() else { return Ok(()) };
        // The broker may refuse a batch for one of its messages, and reports come in one by one: only a page that was
        // sent alone is known for the one.
        for (origin, failure) in failed.iter().filter(|(_, failure)| failure.meaning == Meaning::Refused) {
            if !self.suspects.borrow_mut().insert(*origin) {
                self.refused.add(*origin, &failure.reason);
            }
        }
        let message = format!("{} deliveries failed in {} batches, first {first}", failed.len(), self.batches);
        tracing::warn!(page = ?origin, error = %first, "delivery failed");
        Err(if first.meaning == Meaning::Permanent { Fault::Fatal(message) } else { Fault::Aborted(message) })
    }

    fn commit_transaction(&mut self) -> Result<(), Fault> {
        if !self.offsets.is_empty() {
            crash_point::reach("send-offsets");
            self.retrying("send offsets", || {
                let _call = self.link.calling();
                self.publisher.send_offsets(&self.offsets)
            })?;
        }
        self.look_for_failures()?;
        crash_point::reach("before-commit");
        self.in_doubt = Some(self.offsets.clone());
        let commit = || {
            let _call = self.link.calling();
            self.publisher.commit()
        };
        match self.retrying("commit", commit) {
            Ok(()) => {
                self.in_doubt = None;
                Ok(())
            }
            Err(Outcome::Known(fault)) => {
                self.in_doubt = None;
                // Which page was it? The reports know.
                self.look_for_failures()?;
                Err(fault)
            }
            Err(Outcome::Doubtful(fault)) => Err(fault),
        }
    }

    /// Calls until it works, fails for good, or the transaction's time is over.
    fn retrying(&self, what: &str, call: impl Fn() -> Result<(), Failure>) -> Result<(), Outcome> {
        let deadline = self.publisher.now() + self.settings.transaction_timeout;
        // A call without an answer may have taken effect, whatever the next one says.
        let mut unanswered = false;
        loop {
            let Err(failure) = call() else { return Ok(()) };
            match failure.meaning {
                Meaning::Retriable if self.publisher.now() < deadline => {
                    unanswered = true;
                    self.publisher.wait(RETRY_AFTER);
                }
                Meaning::Retriable => {
                    return Err(Outcome::Doubtful(Fault::Aborted(format!("cannot {what} in time: {failure}"))));
                }
                Meaning::Abortable if !unanswered => return Err(Outcome::Known(self.fault(what, &failure))),
                _ => return Err(Outcome::Doubtful(self.fault(what, &failure))),
            }
        }
    }

    fn fault(&self, what: &str, failure: &Failure) -> Fault {
        let message = format!("cannot {what}: {failure}");
        match failure.meaning {
            // A process that took the name would have fenced the transaction before it joined the group.
            Meaning::FencedMember if self.exactly_once() && self.link.is_lost() => Fault::Aborted(message),
            Meaning::Fenced | Meaning::FencedMember => {
                Fault::Fatal(format!("{message}: another process runs under the name {}", self.settings.instance))
            }
            Meaning::Permanent => Fault::Fatal(message),
            _ => Fault::Aborted(message),
        }
    }

    /// Waits until everything sent is acknowledged.
    fn flush(&self) -> Result<(), Fault> {
        while !self.publisher.flush(FLUSH_STEP) {
            self.look_for_failures()?;
        }
        self.look_for_failures()
    }

    /// At least once: outcomes are acknowledged first, then what is remembered of them, then the offsets.
    fn commit_offsets(&mut self) -> Result<(), Fault> {
        crash_point::reach("send-offsets");
        self.release()?;
        self.flush()?;
        if self.offsets.is_empty() {
            return Ok(());
        }
        crash_point::reach("before-commit");
        let committed = self.member.commit(&self.offsets);
        committed.map_err(|failure| {
            self.in_doubt = Some(self.offsets.clone());
            self.fault("commit offsets", &failure)
        })
    }
}
