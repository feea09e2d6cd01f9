//! `pagesieve snapshot inspect`: what a segment of a snapshot holds, and whether it is sound.

use super::text;
use crate::state::record::{self, StateRecord};
use crate::state::segment::{Chunk, HEADER_BYTES, Header, Reader};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Options of `snapshot`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Read segments through, check every checksum and say what they hold; exits 1 if one is damaged
    Inspect {
        /// Segments, or directories of them
        #[arg(required = true, value_name = "FILE")]
        paths: Vec<PathBuf>,
    },
}

/// Does what is asked.
pub fn run(args: &Args) -> Result<()> {
    let Command::Inspect { paths } = &args.command;
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(segments_in(path)?);
        } else {
            files.push(path.clone());
        }
    }
    let damaged = files.iter().filter(|path| !inspect(path)).count();
    if damaged > 0 {
        bail!("{damaged} of {} cannot be used whole", files.len());
    }
    Ok(())
}

fn segments_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    files.sort_unstable();
    if files.is_empty() {
        bail!("{} has no segments", directory.display());
    }
    Ok(files)
}

/// Prints what it is. Is it sound?
fn inspect(path: &Path) -> bool {
    println!("{}", path.display());
    let row = |name: &str, value: String| println!("  {name:<12}{value}");
    let opened = File::open(path).map_err(Into::into).and_then(|file| Reader::new(BufReader::new(file)));
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(damage) => {
            row("DAMAGED", damage.to_string());
            return false;
        }
    };
    let Header { sketch, settings, topic, era, first, next, records, remembered, latest, window, chunk_bytes, .. } =
        reader.header().clone();
    row("topic", if era == 0 { topic } else { format!("{topic}, made anew {era} times before") });
    row("sketches", format!("{sketch} ({settings})"));
    row("offsets", format!("{first} to before {next}"));
    row("records", format!("{}, {} of them pages remembered", text::count(records), text::count(remembered)));
    if let (1.., Ok(time)) = (latest, jiff::Timestamp::from_second(i64::from(latest))) {
        row("latest page", time.to_string());
    }
    if let Some(offset) = window {
        row("window", format!("begins anew at offset {offset}"));
    }
    row("bytes", text::bytes((HEADER_BYTES as u64 + chunk_bytes) as f64));
    let (mut chunk, mut num_chunks, mut num_unreadable, mut num_forgotten) = (Chunk::default(), 0, 0, 0);
    loop {
        match reader.read(&mut chunk) {
            Ok(false) => break,
            Ok(true) => num_chunks += 1,
            Err(damage) => {
                row("DAMAGED", format!("{damage}; offsets {} to before {next} cannot be read", reader.next()));
                return false;
            }
        }
        for bytes in chunk.records() {
            match record::decode(bytes) {
                Ok((StateRecord::Forget { .. }, _)) => num_forgotten += 1,
                Ok(_) => {}
                Err(_) => num_unreadable += 1,
            }
        }
    }
    row("chunks", format!("{}, all sound", text::count(num_chunks)));
    if num_forgotten > 0 {
        row("tombstones", text::count(num_forgotten));
    }
    if num_unreadable > 0 {
        row("UNREADABLE", format!("{} records", text::count(num_unreadable)));
    }
    true
}
