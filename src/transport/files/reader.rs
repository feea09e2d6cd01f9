//! Inputs → batches of lines. A batch's buffer is a stretch of the input itself, so survivors can be
//! written from it without copying them.

use super::compression::{is_compressed, open_input};
use crate::batch::{Delivery, Limits, ReceivedBatch};
use crate::index::Origin;
use crate::transport::{Fault, Received, Source};
use anyhow::{Result, bail};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Inputs up to this size are read once more beforehand to count their lines.
const COUNTED_BYTES: u64 = 1 << 30;

/// Lines longer than this many times `max_page_bytes` are not kept whole.
const KEPT_OVER_LIMIT: usize = 4;

/// How far the reading is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Bytes taken from the inputs, as they are stored.
    pub read_bytes: Arc<AtomicU64>,
}

/// Reads inputs one after the other.
pub struct FileSource {
    names: Arc<[String]>,
    input: usize,
    reader: Option<Box<dyn Read + Send>>,
    progress: Progress,
    /// The beginning of a line whose end has not been read.
    carry: Vec<u8>,
    line: u64,
    max_line_bytes: usize,
    /// Bytes of an overlong line that were read and not kept.
    discarded: u64,
    discarding: bool,
}

impl FileSource {
    /// A source over these paths; `-` is standard input. All are opened once now, so that a wrong one is
    /// found before work begins.
    pub fn new(names: Arc<[String]>, max_page_bytes: usize, progress: Progress) -> Result<Self> {
        if names.len() > Origin::MAX_SOURCES {
            bail!("{} inputs are more than {}", names.len(), Origin::MAX_SOURCES);
        }
        for name in names.iter().filter(|name| *name != "-") {
            let kind = std::fs::metadata(name).map_err(|error| anyhow::anyhow!("cannot read {name}: {error}"))?;
            if kind.is_dir() {
                bail!("cannot read {name}: it is a directory");
            }
        }
        Ok(Self {
            names,
            input: 0,
            reader: None,
            progress,
            carry: Vec::new(),
            line: 0,
            max_line_bytes: max_page_bytes.saturating_mul(KEPT_OVER_LIMIT),
            discarded: 0,
            discarding: false,
        })
    }

    /// Most pages that all inputs can hold, where that is cheap to find out: they are plain files of at most
    /// [`COUNTED_BYTES`] together, whose lines are counted.
    pub fn most_pages(&self) -> Option<u64> {
        let files = self.names.iter().map(|name| std::fs::metadata(name).ok().filter(|file| file.is_file()));
        let sizes = files.map(|file| Some(file?.len())).collect::<Option<Vec<u64>>>()?;
        if sizes.iter().sum::<u64>() > COUNTED_BYTES {
            return None;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut num_lines = 0;
        for name in self.names.iter() {
            let mut file = std::fs::File::open(name).ok()?;
            let mut first = true;
            loop {
                let got = file.read(&mut chunk).ok()?;
                if got == 0 {
                    break;
                }
                if std::mem::take(&mut first) && is_compressed(&chunk[..got]) {
                    return None;
                }
                num_lines += memchr::memchr_iter(b'\n', &chunk[..got]).count() as u64;
            }
            num_lines += 1;
        }
        Some(num_lines)
    }

    /// The next input, opened; `None` when all have been read.
    fn reader(&mut self) -> Result<Option<&mut Box<dyn Read + Send>>, Fault> {
        if self.reader.is_none() {
            let Some(name) = self.names.get(self.input) else { return Ok(None) };
            let opened = open_input(name, self.progress.read_bytes.clone());
            self.reader = Some(opened.map_err(|error| Fault::Fatal(format!("{error:#}")))?);
            self.line = 0;
        }
        Ok(self.reader.as_mut())
    }

    /// Appends what the current input has, up to a chunk. 0 at its end.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> Result<usize, Fault> {
        let (name, line) = (self.names.get(self.input).cloned().unwrap_or_default(), self.line);
        let Some(reader) = self.reader()? else { return Ok(0) };
        let start = buffer.len();
        buffer.resize(start + CHUNK_BYTES, 0);
        let got = loop {
            match reader.read(&mut buffer[start..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    buffer.truncate(start);
                    return Err(Fault::Fatal(format!("cannot read {name} after line {line}: {error}")));
                }
                Ok(got) => break got,
            }
        };
        buffer.truncate(start + got);
        Ok(got)
    }

    /// Adds the line at `start..end` (without its newline, unless it is blank).
    fn push_line(&mut self, batch: &mut ReceivedBatch, start: usize, end: usize) {
        self.line += 1;
        if batch.buffer[start..end].iter().all(u8::is_ascii_whitespace) && self.discarded == 0 {
            return;
        }
        let whole = (self.discarded > 0).then(|| (end - start) as u64 + self.discarded);
        self.discarded = 0;
        batch.deliveries.push(Delivery {
            origin: Origin { source: self.input as u16, offset: self.line },
            value: Some(start..end),
            cut_from: whole,
            key: None,
            headers: 0..0,
            timestamp_ms: None,
        });
    }
}

impl Source for FileSource {
    fn receive(&mut self, batch: &mut ReceivedBatch, limits: &Limits) -> Result<Received, Fault> {
        batch.received_at.get_or_insert_with(Instant::now);
        batch.buffer.append(&mut self.carry);
        let mut line_start = 0;
        let mut scanned = 0;
        loop {
            // Lines that are whole.
            while let Some(length) = memchr::memchr(b'\n', &batch.buffer[scanned..]) {
                let end = scanned + length;
                self.discarding = false;
                self.push_line(batch, line_start, end);
                (line_start, scanned) = (end + 1, end + 1);
                if batch.deliveries.len() == limits.pages {
                    break;
                }
            }
            let full = batch.deliveries.len() >= limits.pages || line_start >= limits.bytes;
            if full {
                self.carry.extend_from_slice(&batch.buffer[line_start..]);
                batch.buffer.truncate(line_start);
                return Ok(Received::Some);
            }
            scanned = batch.buffer.len();
            if self.discarding || scanned - line_start > self.max_line_bytes {
                self.discarding = true;
                self.discard_rest_of_line(batch)?;
                continue;
            }
            if self.fill(&mut batch.buffer)? > 0 {
                continue;
            }
            // The end of this input: what is left is a line without a newline.
            if line_start < batch.buffer.len() {
                let end = batch.buffer.len();
                batch.buffer.push(b'\n');
                self.push_line(batch, line_start, end);
                line_start = end + 1;
                scanned = line_start;
            }
            self.reader = None;
            self.input += 1;
            if self.input >= self.names.len() {
                return Ok(Received::End);
            }
        }
    }
}

impl FileSource {
    /// Reads on to the newline of an overlong line and keeps only that; the line's beginning stays in
    /// the batch.
    fn discard_rest_of_line(&mut self, batch: &mut ReceivedBatch) -> Result<(), Fault> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        loop {
            chunk.clear();
            let got = self.fill(&mut chunk)?;
            let Some(newline) = memchr::memchr(b'\n', &chunk) else {
                self.discarded += got as u64;
                if got == 0 {
                    self.discarding = false;
                    batch.buffer.push(b'\n');
                    return Ok(());
                }
                continue;
            };
            self.discarded += newline as u64;
            batch.buffer.extend_from_slice(&chunk[newline..]);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    fn lines(content: &[u8], pages: usize, bytes: usize) -> Vec<(u64, Vec<u8>, Option<u64>)> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(content).expect("it can be written");
        let names = Arc::from([file.path().display().to_string()]);
        let mut source = FileSource::new(names, 50_000, Progress::default()).expect("it is there");
        let limits = Limits { pages, bytes, wait: Duration::ZERO };
        let mut found = Vec::new();
        loop {
            let mut batch = ReceivedBatch::default();
            let received = source.receive(&mut batch, &limits).expect("it can be read");
            for delivery in &batch.deliveries {
                let span = delivery.value.clone().expect("a line has bytes");
                assert_eq!(batch.buffer[span.end], b'\n');
                found.push((delivery.origin.offset, batch.buffer[span].to_vec(), delivery.cut_from));
            }
            if received == Received::End {
                return found;
            }
        }
    }

    #[test]
    fn any_batching_gives_the_same_lines() {
        let long = "x".repeat(150_000);
        let content = format!("one\n\n  \ntwo\r\n{long}\nlast");
        let expected = vec![
            (1, b"one".to_vec(), None),
            (4, b"two\r".to_vec(), None),
            (5, long.into_bytes(), None),
            (6, b"last".to_vec(), None),
        ];
        for (pages, bytes) in [(1, 1), (1, 1 << 20), (2, 10), (1000, 1 << 20), (1000, 7)] {
            assert_eq!(lines(content.as_bytes(), pages, bytes), expected, "{pages} pages, {bytes} bytes");
        }
        assert!(lines(b"", 10, 10).is_empty());
        assert!(lines(b"\n\n", 10, 10).is_empty());
    }

    #[test]
    fn a_line_over_four_times_the_limit_is_cut_and_says_so() {
        for newline in ["\n", "\nnext\n", ""] {
            let content = format!("first\n{}{newline}", "y".repeat(700_000));
            let found = lines(content.as_bytes(), 10, 1 << 20);
            assert_eq!(found[1].0, 2);
            assert_eq!(found[1].2, Some(700_000), "{newline:?}");
            assert!(found[1].1.len() <= 200_000 + 2 * CHUNK_BYTES);
            assert_eq!(found.len(), if newline.len() > 1 { 3 } else { 2 });
        }
    }
}
