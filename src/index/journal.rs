//! The changes of transactions that have not committed yet, in order, so that they can be undone.

use super::Slot;
use super::table::Overwritten;
use std::collections::VecDeque;

/// One change of the index and what it takes to undo it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The changes behind this one are of the next page.
    Page,
    /// A page was remembered.
    Insert(Slot),
    /// A page was forgotten; it stood before that one in the order of recency (`None`: it was last).
    Remove {
        /// The page.
        slot: Slot,
        /// The one after it.
        before: Option<Slot>,
    },
    /// A page was moved to the front; it stood before that one.
    Touch {
        /// The page.
        slot: Slot,
        /// The one after it.
        before: Option<Slot>,
    },
    /// A table entry of a forgotten page gave way.
    Overwrite(Overwritten),
    /// A page's event time was this.
    Time {
        /// The page.
        slot: Slot,
        /// Its event time before.
        old: u32,
    },
}

/// Changes by transaction, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    changes: VecDeque<Change>,
    /// Number of changes of each sealed transaction.
    sealed: VecDeque<usize>,
    open: usize,
}

impl Journal {
    /// Adds a change to the open transaction.
    pub fn push(&mut self, change: Change) {
        self.changes.push_back(change);
        self.open += 1;
    }

    /// Changes not yet committed.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Is there nothing to commit or undo?
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Ends the open transaction and begins the next.
    pub fn seal(&mut self) {
        self.sealed.push_back(std::mem::take(&mut self.open));
    }

    /// Takes the oldest sealed transaction's changes out, in order. The caller has sealed it.
    pub fn commit(&mut self, each: impl FnMut(Change)) {
        let count = self.sealed.pop_front().expect("only a sealed transaction commits");
        self.changes.drain(..count).for_each(each);
    }

    /// Takes the newest change out, whatever its transaction; none is left once this is `None`.
    pub fn pop(&mut self) -> Option<Change> {
        let change = self.changes.pop_back();
        if change.is_none() {
            self.sealed.clear();
            self.open = 0;
        }
        change
    }
}
