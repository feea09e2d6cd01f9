//! `pagesieve filter`: the engine on files and pipes.

use super::text;
use crate::batch::Limits;
use crate::config::{self, Config, Key};
use crate::index::judge::{Judge, Rules};
use crate::index::plan::Plan;
use crate::metrics::Metrics;
use crate::page::TEXT_VERSION;
use crate::page::decode::Decoder;
use crate::pipeline;
use crate::pipeline::sketch_stage::SketchStage;
use crate::sketch::{Shape, Sketcher};
use crate::transport::Fault;
use crate::transport::files::{FileSink, FileSource, InputNames, Outputs, Progress, Report, open_output};
use crate::verdict::Verdict;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Used where no key is given, so that two runs agree. Known to all: whoever writes the pages can
/// make them collide, so `run` never uses it.
const PUBLIC_KEY: [u8; 16] = *b"pagesieve public";

/// Bytes of a batch: large enough that handing it on costs nothing, small enough for a core's cache.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_PAGES: usize = 1024;

/// Options of `filter`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON lines, one page a line, also .gz and .zst; - is standard input
    #[arg(value_name = "INPUT", default_value = "-")]
    inputs: Vec<String>,
    /// Survivors go here, byte for byte and in order (.gz and .zst compress)
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// One JSON line for each duplicate: the page, its canonical, their resemblance
    #[arg(long, value_name = "FILE")]
    duplicates: Option<PathBuf>,
    /// One JSON line for each page that could not be judged, with its original bytes
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,
    /// Counts, speed and memory as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Leave no page out: append `"pagesieve":{…}` to every line
    #[arg(long)]
    tag: bool,
    /// Verified resemblance from which a page is a near-duplicate [default: 0.8]
    #[arg(long, value_name = "0.5..1")]
    threshold: Option<String>,
    /// Pages older than this are forgotten, by their own times; "none": never [default: 7d]
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
    /// Memory of the index with its names [default: 4GiB]
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<String>,
    /// Sketch threads [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// File with the secret key, 32 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Configuration file; the options above override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// No progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// Filters.
pub fn run(args: &Args) -> Result<()> {
    let config = configuration(args)?;
    let key = config.sketch.key.unwrap_or_else(|| {
        if !args.quiet {
            eprintln!("using the public key: fine for a try, but pages can be made to collide; see `pagesieve keygen`");
        }
        Key::from_bytes(PUBLIC_KEY)
    });
    outputs_are_apart(args)?;
    let names: Arc<[String]> = args.inputs.clone().into();
    let progress = Progress::default();
    let mut source = FileSource::new(names.clone(), config.input.max_page_bytes, progress.clone())?;
    let open = |path: &Option<PathBuf>| path.as_deref().map(open_output).transpose();
    let outputs = Outputs {
        survivors: Some(open_output(&args.output)?),
        duplicates: open(&args.duplicates)?,
        rejected: open(&args.rejected)?,
        tag: args.tag,
    };
    let report_file = open(&args.report)?;
    let mut sink = FileSink::new(outputs, InputNames(names));

    let shape = Shape::new(&config.sketch);
    let plan = Plan::for_at_most(source.most_pages().unwrap_or(u64::MAX), &config.window, &shape);
    let mut judge = Judge::new(Rules::new(&config.policy, &config.window, &shape), plan);
    let stage = SketchStage::new(Decoder::new(&config.input), Sketcher::new(shape, &key));
    let metrics = Metrics::new(&TEXT_VERSION.to_string());
    let settings = pipeline::Settings {
        threads: config.pipeline.threads,
        limits: Limits { pages: BATCH_PAGES, bytes: BATCH_BYTES, wait: Duration::ZERO },
        commit_interval: Duration::ZERO,
    };
    let started = Instant::now();
    let watch = Watch::start(args, &progress, &metrics);
    let flight =
        pipeline::fly(&settings, &stage, &mut source, &mut sink, &mut judge, &metrics, &AtomicBool::new(false));
    watch.stop();
    // Nobody reads on: what was done by then is complete all the same.
    let closed = matches!(flight, Err(Fault::Closed));
    let report = sink.close().context("cannot write the output")?;
    if let Some(mut file) = report_file {
        serde_json::to_writer_pretty(&mut file, &report.to_json(&judge, &metrics, started.elapsed()))?;
        std::io::Write::write_all(&mut file, b"\n")?;
        file.close()?;
    }
    if closed {
        return Ok(());
    }
    flight?;
    if !args.quiet {
        summarise(args, &report, &judge, started.elapsed());
        let late = metrics.late_pages_total.get();
        if late > 0 {
            eprintln!(
                "{} pages were older than the window: judged, but not remembered (see --window)",
                text::count(late)
            );
        }
    }
    Ok(())
}

/// The file, the environment and the options, in rising order of precedence.
fn configuration(args: &Args) -> Result<Config> {
    let options = [
        ("POLICY__THRESHOLD", &args.threshold),
        ("WINDOW__MAX_AGE", &args.window),
        ("WINDOW__MAX_MEMORY", &args.max_memory),
        ("PIPELINE__THREADS", &args.threads),
        ("SKETCH__KEY_FILE", &args.key_file),
    ];
    let overrides = options
        .into_iter()
        .filter_map(|(key, value)| Some((format!("PAGESIEVE__{key}"), value.clone()?)))
        .collect::<Vec<_>>();
    Ok(config::load(args.config.as_deref(), config::environment().chain(overrides))?)
}

/// Writing over an input, or two outputs into one file, would lose pages.
fn outputs_are_apart(args: &Args) -> Result<()> {
    let mut seen: Vec<Place> = args.inputs.iter().filter_map(|name| Place::of(Path::new(name), "/dev/stdin")).collect();
    let outputs = [Some(&args.output), args.duplicates.as_ref(), args.rejected.as_ref(), args.report.as_ref()];
    for path in outputs.into_iter().flatten() {
        let Some(place) = Place::of(path, "/dev/stdout") else { continue };
        if seen.contains(&place) {
            bail!("{} is used twice: pages would be lost", path.display());
        }
        seen.push(place);
    }
    Ok(())
}

/// What a path stands for, however it is written or linked to. Devices stand for nothing that could be lost.
#[derive(Debug, PartialEq)]
enum Place {
    File {
        device: u64,
        inode: u64,
    },
    /// A file that is not there yet.
    New(PathBuf),
    /// A pipe or terminal on a standard stream.
    Stream(&'static str),
}

impl Place {
    fn of(path: &Path, standard: &'static str) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let is_standard = path.as_os_str() == "-";
        match (if is_standard { Path::new(standard) } else { path }).metadata() {
            Ok(file) if file.is_file() => Some(Self::File { device: file.dev(), inode: file.ino() }),
            _ if is_standard => Some(Self::Stream(standard)),
            Ok(_) => None,
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
                Some(Self::New(path.file_name().map_or_else(|| folder.clone(), |name| folder.join(name))))
            }
        }
    }
}

/// A progress bar on a terminal, a plain line now and then otherwise.
struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    const PLAIN_LINE_EVERY: Duration = Duration::from_secs(10);
    const LOOK_EVERY: Duration = Duration::from_millis(100);

    fn start(args: &Args, progress: &Progress, metrics: &Metrics) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        if args.quiet {
            return Self { over, thread: None };
        }
        let total =
            args.inputs.iter().map(|name| std::fs::metadata(name).ok().map(|file| file.len())).sum::<Option<u64>>();
        let pages = metrics.pages_total.clone();
        let (read, is_over) = (progress.read_bytes.clone(), over.clone());
        let body = move || {
            let bar = std::io::stderr().is_terminal().then(|| bar(total));
            let (started, mut line_due) = (Instant::now(), Self::PLAIN_LINE_EVERY);
            while !is_over.load(Ordering::Relaxed) {
                std::thread::park_timeout(Self::LOOK_EVERY);
                let (bytes, pages) = (read.load(Ordering::Relaxed), pages.iter().map(|count| count.get()).sum::<u64>());
                if let Some(bar) = &bar {
                    bar.set_position(bytes);
                    bar.set_message(text::count(pages));
                } else if started.elapsed() >= line_due {
                    line_due += Self::PLAIN_LINE_EVERY;
                    let share = total.map_or(String::new(), |total| format!(" ({})", text::percent(bytes, total)));
                    eprintln!("{} pages, {} read{share}", text::count(pages), text::bytes(bytes as f64));
                }
            }
            bar.into_iter().for_each(|bar| bar.finish_and_clear());
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(body).ok();
        Self { over, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            // It only draws: a panic there is not worth the run.
            let _ = thread.join();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => {
            (ProgressBar::new(total), "{bar:30} {percent:>3} %  {binary_bytes_per_sec}  {msg} pages  {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {msg} pages"),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
    bar
}

fn summarise(args: &Args, report: &Report, judge: &Judge, elapsed: Duration) {
    let pages = report.pages();
    let row = |name: &str, number: u64| {
        eprintln!("  {name:<18}{:>14}  {:>7}", text::count(number), text::percent(number, pages))
    };
    let detail = |name: &str, number: u64| eprintln!("    {name:<22}{:>8}", text::count(number));
    let seconds = elapsed.as_secs_f64().max(1e-9);
    eprintln!(
        "{} pages in {seconds:.1} s: {} pages/s, {}/s",
        text::count(pages),
        text::count((pages as f64 / seconds) as u64),
        text::bytes(report.bytes as f64 / seconds)
    );
    row("survivors", report.survivors());
    detail("unique", report.of(Verdict::Unique));
    detail("updated", report.of(Verdict::Updated));
    report.skipped().for_each(|(rule, number)| detail(&format!("skipped: {rule}"), number));
    row("exact duplicates", report.of(Verdict::ExactDuplicate));
    row("near-duplicates", report.of(Verdict::NearDuplicate));
    row("unchanged", report.of(Verdict::Unchanged));
    row("rejected", report.of(Verdict::Rejected));
    report.rejected().for_each(|(reason, number)| detail(reason, number));
    let index = judge.index();
    eprintln!(
        "{} pages remembered of {} that fit in {}",
        text::count(index.num_pages() as u64),
        text::count(index.plan().capacity_pages as u64),
        text::bytes(index.bytes() as f64)
    );
    if report.of(Verdict::Rejected) > 0 && args.rejected.is_none() {
        eprintln!("the rejected lines were not kept: name a file with --rejected to keep them");
    }
}
