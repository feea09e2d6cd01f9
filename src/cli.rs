//! What a person types: one file a command.

mod check_config;
mod evaluate;
mod filter;
mod generate;
mod init;
mod keygen;
mod run;
mod snapshot;

mod text;

use crate::config::{ConfigErrors, EXIT_CONFIG};
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Keeps near-copies out of a stream of crawled pages.
#[derive(Debug, Parser)]
#[command(name = "pagesieve", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stand between Kafka topics: pages in, survivors, verdict records and dead letters out
    Run(run::Args),
    /// Filter files or pipes with the same engine; needs no server
    Filter(filter::Args),
    /// Write a commented configuration
    Init(init::Args),
    /// Make a secret key
    Keygen(keygen::Args),
    /// Check a configuration and say what it means: S-curve, memory, window
    CheckConfig(check_config::Args),
    /// Make a sample crawl with known truth, to a file or a topic
    Generate(generate::Args),
    /// Measure what a filter run dropped and kept, against exact resemblance or the truth of a generated crawl
    Evaluate(evaluate::Args),
    /// Look at the window on disk
    Snapshot(snapshot::Args),
    /// Ask a running daemon whether it is alive or ready
    Healthcheck(run::HealthArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command line and turns its end into an exit code: 0 done, 64 wrong configuration or
/// usage, 1 anything else.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody left to read the help is no error.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Healthcheck(args) => run::healthcheck(&args),
        Command::Filter(args) => filter::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Keygen(args) => keygen::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "pagesieve", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pagesieve: {error:#}");
            let wrong_config = error.chain().any(|cause| cause.is::<ConfigErrors>());
            if wrong_config { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}
