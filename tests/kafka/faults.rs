//! The fault matrix: a crawl is fed, something is harmed meanwhile, and the oracle counts what became of the pages.
//!
//! `make test-faults` runs every row in both guarantees and prints the table. `make test` runs the rows that no other
//! test has, with fewer pages and exactly once.

mod cluster;
mod disk;
mod input;
mod process;

use crate::daemon::{Daemon, SOON, Setup};
use crate::feeding::{Crawl, Feed, Feeding, Terms, crawl_settings};
use crate::flow::alone;
use crate::oracle::{Outcome, Repeats, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Slower than any row, by far: a restart of brokers costs seconds, a session that ends six.
const DRAINED_WITHIN: Duration = Duration::from_secs(180);

/// Pages a second: many transactions between two faults.
const RATE: f64 = 1_500.0;

/// Pages of a crawl in the whole matrix.
const PAGES: u64 = 4_000;

/// The share of a crawl that comes before and while something is harmed.
const AT_FIRST: f64 = 0.75;

/// In which guarantees a row is run.
const BOTH: &[&str] = &["exactly_once", "at_least_once"];

/// The broker's shortest session, for the rows that let one pass.
fn with_short_session(setup: Setup) -> Setup {
    setup.with("kafka.options.\"session.timeout.ms\"", "\"6000\"")
}

/// Runs a row once.
type Run = fn(&Case) -> Result<Found, Skipped>;

/// One row of the matrix.
struct Row {
    name: &'static str,
    run: Run,
    /// Does no other test of `make test` do it, and is it quick?
    is_short: bool,
}

/// A row, in one of the guarantees.
struct Case {
    row: &'static str,
    delivery: &'static str,
    pages: u64,
    /// Pages a second.
    rate: f64,
}

/// What a row came to.
struct Found {
    report: Report,
    faults: Vec<String>,
}

/// Why a row cannot be run here.
struct Skipped(String);

/// All rows.
fn rows() -> Vec<Row> {
    [process::ROWS, cluster::ROWS, disk::ROWS, input::ROWS]
        .into_iter()
        .flatten()
        .map(|(name, run, is_short)| Row { name, run: *run, is_short: *is_short })
        .collect()
}

impl Case {
    /// Topics of four partitions and a configuration, named after the row.
    fn setup(&self) -> Setup {
        self.configured(Setup::new(&self.name(), 4))
    }

    fn name(&self) -> String {
        let name = |text: &str| text.replace(|it: char| !it.is_ascii_alphanumeric(), "-");
        format!("{}-{}", name(self.row), name(self.delivery))
    }

    fn configured(&self, setup: Setup) -> Setup {
        setup.with("kafka.delivery", format!("{:?}", self.delivery))
    }

    /// The same with pages that come for so long, for what takes a while to happen among them.
    fn lasting(&self, seconds: f64) -> Self {
        Self { rate: self.pages as f64 * AT_FIRST / seconds, ..*self }
    }

    /// How often a fault comes that costs seconds.
    fn rounds(&self) -> usize {
        if self.pages < PAGES { 1 } else { 3 }
    }

    fn is_exactly_once(&self) -> bool {
        self.delivery == "exactly_once"
    }
}

/// A daemon at work on a crawl.
struct Trial<'a> {
    case: &'a Case,
    setup: Setup,
    daemon: Option<Daemon>,
    feeding: Option<Feeding>,
    faults: Vec<String>,
}

impl<'a> Trial<'a> {
    /// Starts the daemon and begins to feed; the last quarter waits for [`Trial::drain`].
    fn begin(case: &'a Case, setup: Setup) -> Self {
        Self::begin_altered(case, setup, |_, _| {})
    }

    /// The same with something done to the records.
    fn begin_altered(case: &'a Case, setup: Setup, alter: fn(usize, &mut crate::topics::Record)) -> Self {
        let daemon = setup.start_ready();
        let mut trial = Self::without_daemon(case, setup, alter);
        trial.daemon = Some(daemon);
        trial
    }

    /// Begins to feed.
    fn without_daemon(case: &'a Case, setup: Setup, alter: fn(usize, &mut crate::topics::Record)) -> Self {
        let settings = crawl_settings(case.pages, 17);
        let feeding =
            Feed { settings, partitions: 0..4, rate: case.rate, at_first: AT_FIRST, alter, keep: |_| {} }.start(&setup);
        Self { case, setup, daemon: None, feeding: Some(feeding), faults: Vec::new() }
    }

    /// The daemon, which has to run.
    fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("it was started")
    }

    /// Notes a fault for the table.
    fn fault(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    /// Waits until this share of the crawl is committed.
    fn wait_committed(&mut self, share: f64) {
        let enough = (self.case.pages as f64 * share) as i64;
        let progress = self.setup.progress();
        let committed =
            move || progress.try_look().map_or(0, |look| look.values().map(|(committed, _)| committed).sum());
        self.daemon().wait("a part is committed", SOON, |_| committed() >= enough);
    }

    fn kill(&mut self) {
        self.daemon.take().expect("it was started").kill();
        self.fault("SIGKILL");
    }

    fn start(&mut self) {
        self.daemon = Some(self.setup.start_ready());
    }

    /// Has the rest of the crawl fed.
    fn finish_feeding(&mut self) -> Crawl {
        self.feeding.take().expect("it is finished once").finish()
    }

    /// Has the rest of the crawl fed and waits until all of it is committed.
    fn drain(&mut self) -> Crawl {
        let crawl = self.finish_feeding();
        self.wait_drained();
        crawl
    }

    fn wait_drained(&mut self) {
        let daemon = self.daemon.as_mut().expect("it was started");
        self.setup.wait_drained(daemon, DRAINED_WITHIN);
    }

    /// Has the rest fed, waits until it is committed, stops the daemon and counts.
    fn end(mut self) -> Result<Found, Skipped> {
        let mut crawl = self.drain();
        Ok(self.count(&mut crawl, true).0)
    }

    /// Stops the daemon and counts. Was the window whole all the time?
    fn count(mut self, crawl: &mut Crawl, whole_window: bool) -> (Found, Outcome) {
        if let Some(daemon) = self.daemon.take() {
            daemon.terminate();
        }
        // A broker that is killed may take a record twice from the test's own producer, which is told of one. What is in
        // the topic is what is to be answered.
        let (there, records): (Vec<_>, Vec<_>) = self.setup.cluster.read_all(&self.setup.inputs[0]).into_iter().unzip();
        let fed_twice = crawl.add(&there, &records);
        if fed_twice > 0 {
            self.fault(format!("{fed_twice} pages are in the input twice"));
        }
        let outcome = Outcome::read(&self.setup);
        // Without transactions an error of the cluster repeats pages too, however often it comes.
        let repeats = if self.case.is_exactly_once() { Repeats::Never } else { Repeats::After(usize::MAX - 1) };
        let mut report = crawl.report(&outcome, Terms { repeats, whole_window });
        if self.faults.is_empty() {
            report.wrong("no fault was injected");
        }
        (Found { report, faults: self.faults }, outcome)
    }
}

/// A line of the table.
struct Line {
    row: &'static str,
    delivery: &'static str,
    result: Result<Found, String>,
    skipped: bool,
    took: Duration,
}

impl Line {
    const HEAD: &'static str = "row                                           | delivery      | pages | lost | doubled | (a) gone | \
         (d) orphans | (e) surplus | seconds | verdict | faults";

    fn is_sound(&self) -> bool {
        self.skipped || self.result.as_ref().is_ok_and(|found| found.report.wrong.is_empty())
    }

    fn verdict(&self) -> &'static str {
        match self {
            Line { skipped: true, .. } => "skipped",
            line if line.is_sound() => "ok",
            _ => "FAILED",
        }
    }

    /// As in the table.
    fn text(&self) -> String {
        let (seconds, verdict) = (self.took.as_secs_f64(), self.verdict());
        let begin = format!("{:<45} | {:<13}", self.row, self.delivery);
        match &self.result {
            Ok(Found { report, faults }) => {
                let Report { pages, lost, doubled, clusters_gone, orphans, surplus, .. } = report;
                let mut counted: Vec<(&str, usize)> = Vec::new();
                for fault in faults {
                    match counted.last_mut() {
                        Some((last, times)) if last == fault => *times += 1,
                        _ => counted.push((fault, 1)),
                    }
                }
                let times = |(fault, times): (&str, usize)| match times {
                    1 => fault.to_owned(),
                    _ => format!("{times} × {fault}"),
                };
                let faults = counted.into_iter().map(times).collect::<Vec<_>>().join(", ");
                format!(
                    "{begin} | {pages:>5} | {lost:>4} | {doubled:>7} | {clusters_gone:>8} | {orphans:>11} | \
                     {surplus:>11} | {seconds:>7.1} | {verdict:<7} | {faults}"
                )
            }
            Err(why) => {
                let why = why.lines().next().unwrap_or_default();
                format!(
                    "{begin} |     – |    – |       – |        – |           – |           – | {seconds:>7.1} | \
                     {verdict:<7} | {why}"
                )
            }
        }
    }

    /// What is wrong, if anything.
    fn complaints(&self) -> Option<String> {
        let what = match &self.result {
            _ if self.is_sound() => return None,
            Ok(found) => found.report.wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n"),
            Err(why) => why.clone(),
        };
        Some(format!("{}, {}:\n{what}", self.row, self.delivery))
    }
}

fn run(row: &Row, delivery: &'static str, pages: u64) -> Line {
    let case = Case { row: row.name, delivery, pages, rate: RATE };
    let started = Instant::now();
    // One row's end is not the matrix's.
    let result = catch_unwind(AssertUnwindSafe(|| (row.run)(&case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default();
        let mut report = Report::default();
        report.wrong(text);
        Ok(Found { report, faults: Vec::new() })
    });
    let (result, skipped) = match result {
        Ok(found) if found.report.pages == 0 => (Err(found.report.wrong.join("\n")), false),
        Ok(found) => (Ok(found), false),
        Err(Skipped(why)) => (Err(why), true),
    };
    Line { row: row.name, delivery, result, skipped, took: started.elapsed() }
}

/// Runs rows, prints each as it ends and all of them at the end, and panics if one is not as promised.
fn run_all(rows: &[Row], deliveries: &[&'static str], pages: u64) {
    let mut lines = Vec::new();
    for row in rows {
        for delivery in deliveries {
            println!("── {}, {delivery}", row.name);
            let line = run(row, delivery, pages);
            println!("{}", line.text());
            line.complaints().into_iter().for_each(|complaints| println!("{complaints}"));
            lines.push(line);
        }
    }
    println!("\n{}", Line::HEAD);
    lines.iter().for_each(|line| println!("{}", line.text()));
    let complaints = lines.iter().filter_map(Line::complaints).collect::<Vec<_>>();
    assert!(
        complaints.is_empty(),
        "{} of {} rows failed\n\n{}",
        complaints.len(),
        lines.len(),
        complaints.join("\n\n")
    );
}

#[test]
#[ignore = "takes half an hour: make test-faults"]
fn matrix() {
    if !cfg!(feature = "crash-points") {
        panic!("the matrix needs --features crash-points; `make test-faults` gives it");
    }
    let _turn = alone();
    // `PAGESIEVE_FAULTS=disk,clock` runs the rows with one of these in their names.
    let wanted = std::env::var("PAGESIEVE_FAULTS").unwrap_or_default();
    let is_wanted = |row: &Row| wanted.split(',').any(|part| row.name.contains(part));
    let rows = rows().into_iter().filter(is_wanted).collect::<Vec<_>>();
    assert!(!rows.is_empty(), "no row has {wanted:?} in its name");
    run_all(&rows, BOTH, PAGES);
}

#[test]
fn the_rows_that_no_other_test_has() {
    let _turn = alone();
    let rows = rows().into_iter().filter(|row| row.is_short).collect::<Vec<_>>();
    run_all(&rows, &BOTH[..1], PAGES / 2);
}
