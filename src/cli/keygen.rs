//! `pagesieve keygen`: a secret key.

use crate::config::Key;
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Options of `keygen`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the key here, readable by the owner only; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Makes a key from the system's randomness.
pub fn run(args: &Args) -> Result<()> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    let key = Key::from_bytes(bytes);
    let Some(path) = &args.output else {
        println!("{}", key.to_hex());
        return Ok(());
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A key that is in use is worth a whole window: it is never overwritten.
    let mut file = options.open(path).with_context(|| format!("cannot create {}", path.display()))?;
    writeln!(file, "{}", key.to_hex())?;
    eprintln!("wrote a new key (id {}) to {}", key.id(), path.display());
    Ok(())
}
