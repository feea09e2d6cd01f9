//! `pagesieve init`: a commented configuration.

use crate::config;
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Options of `init`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it here instead of to standard output; an existing file is left alone
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the table of all options in Markdown instead
    #[arg(long)]
    markdown: bool,
}

/// Writes the template.
pub fn run(args: &Args) -> Result<()> {
    let text = if args.markdown { config::markdown_table() } else { config::template() };
    let Some(path) = &args.output else {
        // A closed pipe is no error.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(());
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    eprintln!("wrote {}: set what is not commented out, then `pagesieve check-config -c {0}`", path.display());
    Ok(())
}
