//! The `pagesieve` program: parses the command line and hands over.

use pagesieve::cli;
use std::process::ExitCode;

/// Pages come and go in all sizes for weeks: jemalloc keeps the resident size flat.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
