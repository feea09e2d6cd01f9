//! Plain, gzip and Zstandard streams. Input is told apart by its first bytes, output by its name.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes asked of the system at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A reader that counts what has been taken from it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.count.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Opens an input by its path (`-` is standard input), inflating it as its first bytes ask for.
/// `count` counts the bytes taken from the file itself.
pub fn open_input(path: &str, count: Arc<AtomicU64>) -> Result<Box<dyn Read + Send>> {
    let raw: Box<dyn Read + Send> = match path {
        "-" => Box::new(io::stdin()),
        path => Box::new(File::open(path).with_context(|| format!("cannot read {path}"))?),
    };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, Counted { inner: raw, count });
    let start = reader.fill_buf().with_context(|| format!("cannot read {path}"))?;
    Ok(match format(start) {
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
        Format::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(reader)?),
        Format::Plain => Box::new(reader),
    })
}

enum Format {
    Plain,
    Gzip,
    Zstd,
}

/// By the magic numbers of RFC 1952 and RFC 8878 (frames and skippable frames).
fn format(start: &[u8]) -> Format {
    match start {
        [0x1f, 0x8b, ..] => Format::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
        _ => Format::Plain,
    }
}

/// Does a stream that starts like this have to be inflated?
pub fn is_compressed(start: &[u8]) -> bool {
    !matches!(format(start), Format::Plain)
}

/// An output that must be closed, so that what compression holds back is written and errors are seen.
pub enum Output {
    /// As it is.
    Plain(BufWriter<Box<dyn Write + Send>>),
    /// `.gz`.
    Gzip(flate2::write::GzEncoder<BufWriter<Box<dyn Write + Send>>>),
    /// `.zst`.
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<Box<dyn Write + Send>>>),
}

/// Opens an output by its path (`-` is standard output), compressing as its name asks for.
pub fn open_output(path: &Path) -> Result<Output> {
    let raw: Box<dyn Write + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdout())
    } else {
        Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
    };
    let plain = BufWriter::with_capacity(BUFFER_BYTES, raw);
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Output::Gzip(flate2::write::GzEncoder::new(plain, flate2::Compression::default())),
        Some("zst") => Output::Zstd(zstd::stream::write::Encoder::new(plain, 0)?),
        _ => Output::Plain(plain),
    })
}

impl Output {
    /// Writes what is held back and ends the stream.
    pub fn close(self) -> io::Result<()> {
        match self {
            Self::Plain(mut writer) => writer.flush(),
            Self::Gzip(encoder) => encoder.finish()?.flush(),
            Self::Zstd(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.write(bytes),
            Self::Gzip(writer) => writer.write(bytes),
            Self::Zstd(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(writer) => writer.flush(),
            Self::Gzip(writer) => writer.flush(),
            Self::Zstd(writer) => writer.flush(),
        }
    }
}
