//! The one seam to the outside: where pages come from and where outcomes go.
//!
//! A [`Source`] fills batches, a [`Sink`] publishes judged batches and commits them, with the offsets that they
//! came from, as one act. There are two pairs: [`files`] for `filter` and [`kafka`] for `run`.

pub mod files;
pub mod kafka;

pub mod outcome;

use crate::batch::{JudgedBatch, Limits, ReceivedBatch, SketchedBatch};
use crate::page::Reject;

/// What came of asking a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// At least one record.
    Some,
    /// Nothing within the batch's waiting time.
    None,
    /// Nothing now or ever again; the batch may still hold records.
    End,
}

/// Where pages come from.
pub trait Source {
    /// Appends records to `batch`, in order, until a limit is met.
    fn receive(&mut self, batch: &mut ReceivedBatch, limits: &Limits) -> Result<Received, Fault>;

    /// `batch` is on its way.
    fn sent(&mut self, _batch: &ReceivedBatch) {}

    /// Called while the stages behind are busy; must not take records out.
    fn keep_alive(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Where outcomes go.
pub trait Sink {
    /// Publishes the outcomes of a batch, as part of the open transaction.
    fn deliver(&mut self, judged: &JudgedBatch, batch: &SketchedBatch) -> Result<(), Fault>;

    /// Makes everything delivered since the last commit final.
    fn commit(&mut self) -> Result<(), Fault>;
}

/// Says of a delivery, before it is judged, why the sink would refuse it.
pub type SinkCheck = dyn Fn(&ReceivedBatch, usize) -> Option<Reject> + Send + Sync;

/// Why a flight ended early.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nobody reads the output any more; not an error.
    #[error("the output was closed")]
    Closed,
    /// The transaction did not commit; rewind, and fly again.
    #[error("{0}")]
    Aborted(String),
    /// It will not work next time either.
    #[error("{0}")]
    Fatal(String),
}
