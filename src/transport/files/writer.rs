//! Judged batches → files: survivors as they came, and one JSON line for each page that is not one.

use super::InputNames;
use super::compression::Output;
use super::report::Report;
use crate::batch::{JudgedBatch, SketchedBatch};
use crate::transport::outcome::{self, OutcomeRecord, Positions};
use crate::transport::{Fault, Sink};
use crate::verdict::NotJudged;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use std::io::{self, Write};

/// Where outcomes go; what is `None` is only counted.
pub struct Outputs {
    /// Survivor lines, byte for byte; with `tag` every judged line.
    pub survivors: Option<Output>,
    /// Duplicates and their canonicals.
    pub duplicates: Option<Output>,
    /// Rejected lines and why.
    pub rejected: Option<Output>,
    /// Append the verdict to every line instead of leaving lines out.
    pub tag: bool,
}

/// Writes outcomes of pages from files.
pub struct FileSink {
    outputs: Outputs,
    names: InputNames,
    line: Vec<u8>,
    /// Counts so far.
    pub report: Report,
}

/// A line of `--rejected`: the original bytes are in `record`, or in `record_base64` if they are not UTF-8.
#[derive(Serialize)]
struct RejectedLine<'a> {
    position: &'a str,
    reason: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record_base64: Option<String>,
    /// Length of the whole record in bytes, if only its beginning was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_from_bytes: Option<u64>,
}

impl FileSink {
    /// A sink to these outputs.
    pub fn new(outputs: Outputs, names: InputNames) -> Self {
        Self { outputs, names, line: Vec::new(), report: Report::default() }
    }

    /// Ends all outputs and gives the counts. That nobody reads an output any more is no error.
    pub fn close(self) -> io::Result<Report> {
        let Outputs { survivors, duplicates, rejected, .. } = self.outputs;
        for output in [survivors, duplicates, rejected].into_iter().flatten() {
            output.close().or_else(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error),
            })?;
        }
        Ok(self.report)
    }

    fn write(&mut self, judged: &JudgedBatch, batch: &SketchedBatch) -> io::Result<()> {
        // Neighbouring survivors are one stretch of the input and one write.
        let mut stretch = 0..0;
        for at in 0..batch.pages.len() {
            let verdict = judged.judged[at].verdict;
            let delivery = &batch.received.deliveries[at];
            let span = delivery.value.clone().expect("lines have bytes");
            let reason = judged.not_judged(at);
            self.report.count(verdict, reason.as_ref());
            self.report.bytes += span.len() as u64;
            if let Some(NotJudged::Rejected(reject)) = &reason {
                let Some(rejected) = &mut self.outputs.rejected else { continue };
                let bytes = batch.received.bytes(&span);
                let text = std::str::from_utf8(bytes).ok();
                let line = RejectedLine {
                    position: &self.names.position(delivery.origin),
                    reason: reject.reason.name(),
                    detail: &reject.detail,
                    record: text,
                    record_base64: text.is_none().then(|| BASE64.encode(bytes)),
                    truncated_from_bytes: delivery.cut_from,
                };
                write_line(rejected, &mut self.line, &line)?;
                continue;
            }
            if let (Some(duplicates), true) = (&mut self.outputs.duplicates, verdict.is_duplicate()) {
                let position = self.names.position(delivery.origin);
                write_line(duplicates, &mut self.line, &outcome::record(judged, batch, at, &position, &self.names))?;
            }
            let Some(survivors) = &mut self.outputs.survivors else { continue };
            if self.outputs.tag {
                let position = self.names.position(delivery.origin);
                let record = outcome::record(judged, batch, at, &position, &self.names);
                write_tagged(survivors, &mut self.line, batch.received.bytes(&span), &record)?;
            } else if verdict.survives() {
                // The newline stands behind the line, whatever the input's last line had.
                if stretch.end == span.start {
                    stretch.end = span.end + 1;
                } else {
                    survivors.write_all(&batch.received.buffer[stretch])?;
                    stretch = span.start..span.end + 1;
                }
            }
        }
        if let Some(survivors) = &mut self.outputs.survivors {
            survivors.write_all(&batch.received.buffer[stretch])?;
        }
        Ok(())
    }
}

impl Sink for FileSink {
    fn deliver(&mut self, judged: &JudgedBatch, batch: &SketchedBatch) -> Result<(), Fault> {
        self.write(judged, batch).map_err(fault)
    }

    fn commit(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

fn fault(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Fault::Closed,
        _ => Fault::Fatal(format!("cannot write the output: {error}")),
    }
}

fn write_line(output: &mut Output, line: &mut Vec<u8>, record: &impl Serialize) -> io::Result<()> {
    line.clear();
    serde_json::to_writer(&mut *line, record)?;
    line.push(b'\n');
    output.write_all(line)
}

/// The line with one member `"pagesieve":{…}` appended; it is a JSON object, since it was judged.
fn write_tagged(output: &mut Output, line: &mut Vec<u8>, object: &[u8], record: &OutcomeRecord) -> io::Result<()> {
    let close = object.iter().rposition(|byte| *byte == b'}').expect("a judged line is a JSON object");
    let empty = object[..close].iter().rev().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    line.clear();
    line.extend_from_slice(&object[..close]);
    line.extend_from_slice(if empty { b"\"pagesieve\":" } else { b",\"pagesieve\":" });
    serde_json::to_writer(&mut *line, record)?;
    line.extend_from_slice(&object[close..]);
    line.push(b'\n');
    output.write_all(line)
}
