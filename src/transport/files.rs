//! Files and pipes: JSON lines in, survivors, duplicates and rejected lines out.

mod compression;
mod reader;
mod report;
mod writer;

pub use compression::{Output, open_input, open_output};
pub use reader::{FileSource, Progress};
pub use report::Report;
pub use writer::{FileSink, Outputs};

use super::outcome::Positions;
use crate::index::Origin;
use std::sync::Arc;

/// Names of the inputs, by their number; a position is `input:line`.
#[derive(Debug, Clone)]
pub struct InputNames(pub Arc<[String]>);

impl Positions for InputNames {
    fn position(&self, origin: Origin) -> String {
        format!("{}:{}", self.0[usize::from(origin.source)], origin.offset)
    }
}
