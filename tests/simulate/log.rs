//! The cluster: partitions of records, transactions by name, one consumer group. Everything that happens to it happens
//! in one order, and nothing here is left to chance.

use rdkafka::message::{Headers, OwnedHeaders};
use std::collections::{BTreeMap, BTreeSet};

/// Topic and partition.
pub type Place = (String, i32);

/// Topic, partition, offset.
pub type Position = (String, i32, u64);

/// A record as it lies in the log.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp_ms: Option<i64>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The first header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key == name)?;
        std::str::from_utf8(value.as_ref()?).ok()
    }
}

/// A list of headers as this log keeps it.
pub fn headers(headers: Option<&OwnedHeaders>) -> Vec<(String, Option<Vec<u8>>)> {
    let headers = headers.into_iter().flat_map(|headers| headers.iter());
    headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Open,
    Committed,
    Aborted,
}

/// Why a call was refused for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another process has the name.
    Fenced,
    /// The member does not hold the partition any more.
    IllegalGeneration,
    /// A transaction is about to change what was asked for.
    Unstable,
}

/// What a name has under way.
#[derive(Debug, Default)]
struct Transaction {
    epoch: u32,
    entries: Vec<(Place, usize)>,
    offsets: BTreeMap<Place, u64>,
    /// Pages, by the numbers of their messages.
    order: BTreeMap<u64, Position>,
}

/// The cluster.
#[derive(Debug, Default)]
pub struct Log {
    partitions: BTreeMap<Place, Vec<(Record, Status)>>,
    transactions: BTreeMap<String, Transaction>,
    committed: BTreeMap<Place, u64>,
    /// Instance → the process that has it, and the partitions that the group has given to it.
    members: BTreeMap<String, (u64, BTreeSet<Place>)>,
    /// Pages in the order in which their transactions committed.
    pub order: Vec<Position>,
}

impl Log {
    /// Creates a partition.
    pub fn create(&mut self, topic: &str, partition: i32) {
        self.partitions.insert((topic.to_owned(), partition), Vec::new());
    }

    /// The partitions of a topic.
    pub fn partitions(&self, topic: &str) -> Vec<Place> {
        self.partitions.keys().filter(|(name, _)| name == topic).cloned().collect()
    }

    /// Offset behind the last record.
    pub fn end(&self, place: &Place) -> u64 {
        self.partitions.get(place).map_or(0, |records| records.len() as u64)
    }

    /// Appends a record that is there at once.
    pub fn append(&mut self, place: &Place, record: Record) -> u64 {
        let records = self.partitions.get_mut(place).expect("the partition exists");
        records.push((record, Status::Committed));
        records.len() as u64 - 1
    }

    /// A record of a topic that is written without transactions.
    pub fn record(&self, place: &Place, offset: u64) -> Option<&Record> {
        Some(&self.partitions.get(place)?.get(offset as usize)?.0)
    }

    /// What a reader with `read_committed` gets.
    pub fn committed_records(&self, topic: &str) -> impl Iterator<Item = (&Place, &Record)> {
        let of_topic = self.partitions.iter().filter(move |((name, _), _)| name == topic);
        of_topic.flat_map(|(place, records)| {
            let stable = records.iter().take_while(|(_, status)| *status != Status::Open);
            stable.filter(|(_, status)| *status == Status::Committed).map(move |(record, _)| (place, record))
        })
    }

    /// Settles what the name has under way, fences whoever had it, and returns the new epoch.
    pub fn initialise(&mut self, name: &str) -> u32 {
        self.finish(name, Status::Aborted);
        let transaction = self.transactions.entry(name.to_owned()).or_default();
        transaction.epoch += 1;
        transaction.epoch
    }

    /// The coordinator waited long enough: the transaction is aborted and its producer may not go on.
    pub fn time_out(&mut self, name: &str) -> bool {
        let open = self.transactions.get(name).is_some_and(|it| !it.entries.is_empty() || !it.offsets.is_empty());
        if open {
            self.initialise(name);
        }
        open
    }

    fn transaction(&mut self, name: &str, epoch: u32) -> Result<&mut Transaction, Refusal> {
        self.transactions.get_mut(name).filter(|it| it.epoch == epoch).ok_or(Refusal::Fenced)
    }

    /// Appends a record as part of the name's transaction: its message's number and the page it is about.
    pub fn append_open(
        &mut self,
        (name, epoch): (&str, u32),
        place: &Place,
        record: Record,
        (number, of): (u64, Position),
    ) -> Result<(), Refusal> {
        let at = self.end(place) as usize;
        let transaction = self.transaction(name, epoch)?;
        transaction.entries.push((place.clone(), at));
        transaction.order.insert(number, of);
        self.partitions.get_mut(place).expect("the partition exists").push((record, Status::Open));
        Ok(())
    }

    /// Makes offsets part of the name's transaction.
    pub fn add_offsets(
        &mut self,
        name: &str,
        epoch: u32,
        member: (&str, u64),
        offsets: BTreeMap<Place, u64>,
    ) -> Result<(), Refusal> {
        self.transaction(name, epoch)?;
        self.holds(member, offsets.keys())?;
        self.transaction(name, epoch)?.offsets.extend(offsets);
        Ok(())
    }

    /// Commits or aborts what the name has under way. Doing it twice does no harm.
    pub fn end_transaction(&mut self, name: &str, epoch: u32, commit: bool) -> Result<(), Refusal> {
        self.transaction(name, epoch)?;
        self.finish(name, if commit { Status::Committed } else { Status::Aborted });
        Ok(())
    }

    fn finish(&mut self, name: &str, status: Status) {
        let Some(transaction) = self.transactions.get_mut(name) else { return };
        for (place, at) in std::mem::take(&mut transaction.entries) {
            self.partitions.get_mut(&place).expect("the partition exists")[at].1 = status;
        }
        let (offsets, order) = (std::mem::take(&mut transaction.offsets), std::mem::take(&mut transaction.order));
        if status == Status::Committed {
            self.committed.extend(offsets);
            let mut order = order.into_values().collect::<Vec<_>>();
            order.dedup();
            self.order.extend(order);
        }
    }

    fn holds<'p>(
        &self,
        (instance, process): (&str, u64),
        mut places: impl Iterator<Item = &'p Place>,
    ) -> Result<(), Refusal> {
        match self.members.get(instance) {
            Some((of, _)) if *of != process => Err(Refusal::Fenced),
            Some((_, held)) if places.all(|place| held.contains(place)) => Ok(()),
            _ => Err(Refusal::IllegalGeneration),
        }
    }

    /// Commits offsets outside of a transaction.
    pub fn commit_offsets(&mut self, member: (&str, u64), offsets: BTreeMap<Place, u64>) -> Result<(), Refusal> {
        self.holds(member, offsets.keys())?;
        self.committed.extend(offsets);
        Ok(())
    }

    /// What the group has committed of a partition, unless a transaction is about to change it.
    pub fn committed(&self, place: &Place) -> Result<Option<u64>, Refusal> {
        let pending = self.transactions.values().any(|transaction| transaction.offsets.contains_key(place));
        if pending { Err(Refusal::Unstable) } else { Ok(self.committed.get(place).copied()) }
    }

    /// A transaction that is about to change what is committed of a partition runs out of time.
    pub fn settle_pending(&mut self, place: &Place) {
        let pending = self.transactions.iter().filter(|(_, transaction)| transaction.offsets.contains_key(place));
        let names = pending.map(|(name, _)| name.clone()).collect::<Vec<_>>();
        names.iter().for_each(|name| {
            self.initialise(name);
        });
    }

    /// Transactions that nobody ends run out of time; until then readers wait for them.
    pub fn settle_all(&mut self) {
        let names = self.transactions.keys().cloned().collect::<Vec<_>>();
        names.iter().for_each(|name| {
            self.initialise(name);
        });
    }

    /// Has everything in a topic been committed by the group?
    pub fn is_drained(&self, topic: &str) -> bool {
        self.partitions(topic).iter().all(|place| self.committed.get(place).copied().unwrap_or(0) == self.end(place))
    }

    /// Records of a topic that the group has committed.
    pub fn num_committed(&self, topic: &str) -> u64 {
        self.committed.iter().filter(|((name, _), _)| name == topic).map(|(_, offset)| offset).sum()
    }

    /// A process takes an instance's place in the group; what the instance held stays its own.
    pub fn join(&mut self, instance: &str, process: u64) {
        self.members.entry(instance.to_owned()).or_default().0 = process;
    }

    /// Which process has an instance's place?
    pub fn holder(&self, instance: &str) -> Option<u64> {
        self.members.get(instance).map(|(process, _)| *process)
    }

    /// An instance leaves the group, or its session ends.
    pub fn leave(&mut self, instance: &str) {
        self.members.remove(instance);
    }

    /// What an instance holds.
    pub fn held(&self, instance: &str) -> BTreeSet<Place> {
        self.members.get(instance).map(|(_, held)| held.clone()).unwrap_or_default()
    }

    /// The group gives partitions to an instance.
    pub fn assign(&mut self, instance: &str, places: BTreeSet<Place>) {
        self.members.get_mut(instance).expect("it is a member").1 = places;
    }

    /// Instances in the group.
    pub fn instances(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }
}
