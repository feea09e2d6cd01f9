//! A snapshot of the window: the state topic's records of the window on disk, in segments.
//!
//! ```text
//! 00000000-00000000000000000000-00000000000000123456.segment      era ‐ first offset ‐ next offset
//! 00000000-00000000000000123456-00000000000000234567.segment
//! 00000000-….partial                                              being written; of no value after a crash
//! 00000000-….damaged                                              set aside
//! ```
//!
//! So a snapshot grows with every commit and is never written twice over, costs the judge nothing, restores into any
//! amount of memory, and loses one segment when one is damaged: the state topic may still have those offsets.

use super::segment::{Chunk, Damage, HEADER_BYTES, Header, Reader, Writer};
use crate::crash_point;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

/// A segment is followed by another one from this size on; a smaller last one is written anew with what comes next.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Damaged files that are kept for who wants to look at them.
const KEPT_DAMAGED: usize = 2;

/// Where segments are.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    topic: String,
}

/// A file that is, or was, a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its file.
    pub path: PathBuf,
    /// What it says of itself; if that is damaged, what its name says.
    pub header: Header,
}

impl Segment {
    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.header.chunk_bytes
    }

    /// Opens it to read its chunks.
    pub fn open(&self) -> Result<Reader<BufReader<File>>, Damage> {
        Reader::new(BufReader::with_capacity(1 << 20, File::open(&self.path)?))
    }
}

/// What a directory holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// In order; none is part of another. What is damaged is among them: its offsets have to come from elsewhere.
    pub segments: Vec<Segment>,
    /// Segments that others hold too: a crash came between renaming and removing.
    pub superseded: Vec<Segment>,
    /// What has the name of a segment and is none of this window.
    pub foreign: Vec<(PathBuf, Damage)>,
}

/// What a restore reads, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This segment.
    Segment(usize),
    /// Offsets of the state topic.
    Topic {
        /// From this one on.
        first: u64,
        /// To before this one.
        next: u64,
    },
    /// Offsets that neither has any more.
    Gap {
        /// From this one on.
        first: u64,
        /// To before this one.
        next: u64,
    },
}

impl Directory {
    /// The directory at `path`, made if it is missing, for this state topic.
    pub fn open(path: &Path, topic: &str) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.to_owned(), topic: topic.to_owned() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at every segment's header.
    pub fn list(&self) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "segment") {
                continue;
            }
            match header_of(&path, &self.topic) {
                Ok(header) if header.topic == self.topic => segments.push(Segment { path, header }),
                Ok(header) => {
                    let topic = io::Error::other(format!("it is of the state topic {}", header.topic));
                    contents.foreign.push((path, topic.into()));
                }
                Err(damage) => contents.foreign.push((path, damage)),
            }
        }
        segments.sort_unstable_by_key(|Segment { header, .. }| (header.era, header.first, u64::MAX - header.next));
        for segment in segments {
            let held =
                |last: &Segment| last.header.era == segment.header.era && segment.header.next <= last.header.next;
            let list = match contents.segments.last() {
                Some(last) if held(last) => &mut contents.superseded,
                _ => &mut contents.segments,
            };
            list.push(segment);
        }
        Ok(contents)
    }

    /// Begins a segment behind `last`, or one that goes on where it ends and takes its place, if it is small and sound.
    /// The file has no name to be found by until [`Directory::publish`].
    pub fn begin(&self, new: Header, last: Option<&Segment>) -> io::Result<Draft> {
        let partial = self.path.join(format!("{}.partial", name(&new)));
        let create = || Ok::<_, io::Error>(BufWriter::new(File::create(&partial)?));
        let follows = |last: &Header| (&last.sketch, last.era, last.next) == (&new.sketch, new.era, new.first);
        if let Some(last) = last.filter(|last| last.header.chunk_bytes < SEGMENT_BYTES && follows(&last.header)) {
            let mut writer = Writer::new(create()?, last.header.clone())?;
            if copy(last, &mut writer)? {
                return Ok(Draft { writer, partial, replaces: Some(last.path.clone()) });
            }
        }
        Ok(Draft { writer: Writer::new(create()?, new)?, partial, replaces: None })
    }

    /// Gives a segment its name once all of it is on disk.
    pub fn publish(&self, draft: Draft) -> io::Result<Segment> {
        let Draft { writer, partial, replaces } = draft;
        let (out, header) = writer.finish()?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        let path = self.path.join(format!("{}.segment", name(&header)));
        crash_point::reach("rename");
        fs::rename(&partial, &path)?;
        crash_point::reach("renamed");
        self.sync()?;
        if let Some(old) = replaces.filter(|old| *old != path) {
            fs::remove_file(old)?;
        }
        Ok(Segment { path, header })
    }

    /// Removes a segment.
    pub fn remove(&self, segment: &Segment) -> io::Result<()> {
        fs::remove_file(&segment.path)
    }

    /// Removes what a crash left half-written.
    pub fn remove_partial(&self) -> io::Result<()> {
        for path in self.with_extension("partial")? {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Writes what is sound of a damaged segment anew, and sets the rest aside.
    pub fn salvage(&self, segment: &Segment) -> io::Result<()> {
        if let Ok(mut reader) = segment.open() {
            let mut chunk = Chunk::default();
            let Header { first, era, topic, sketch, settings, .. } = reader.header().clone();
            let mut draft = self.begin(Header::new(sketch, &settings, &topic, era, first), None)?;
            while let Ok(true) = reader.read(&mut chunk) {
                draft.writer.adopt(&chunk, reader.header())?;
            }
            if draft.writer.header().next > first {
                self.publish(draft)?;
            } else {
                draft.discard();
            }
        }
        self.set_aside(&segment.path)
    }

    /// Gives a file another name, so that it is looked at by people only. The oldest of those go.
    pub fn set_aside(&self, path: &Path) -> io::Result<()> {
        fs::rename(path, path.with_extension("damaged"))?;
        let mut damaged = self.with_extension("damaged")?;
        damaged.sort_unstable();
        let surplus = damaged.len().saturating_sub(KEPT_DAMAGED);
        damaged.iter().take(surplus).try_for_each(fs::remove_file)
    }

    fn with_extension(&self, extension: &str) -> io::Result<Vec<PathBuf>> {
        let paths = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|of_path| of_path == extension)).collect())
    }

    /// What was renamed or removed stays so through a power failure.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// A segment that is being written.
#[derive(Debug)]
pub struct Draft {
    /// Takes the records.
    pub writer: Writer<BufWriter<File>>,
    partial: PathBuf,
    replaces: Option<PathBuf>,
}

impl Draft {
    /// Gives it up.
    pub fn discard(self) {
        // What cannot be removed now is removed at the next start.
        let _ = fs::remove_file(&self.partial);
    }
}

/// The header at `path`, from the file's name if need be.
fn header_of(path: &Path, topic: &str) -> Result<Header, Damage> {
    let damage = match File::open(path).map_err(Into::into).and_then(Reader::new) {
        Ok(reader) => return Ok(reader.header().clone()),
        Err(damage) => damage,
    };
    let mut parts = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().split('-');
    let (era, first, next) = (parts.next(), parts.next(), parts.next());
    let (era, first, next) = (era.and_then(|it| it.parse().ok()), number(first), number(next));
    match (era, first, next, parts.next()) {
        (Some(era), Some(first), Some(next), None) if first <= next => {
            Ok(Header { next, ..Header::new(String::new(), "", topic, era, first) })
        }
        _ => Err(damage),
    }
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Copies all chunks. False if they are not sound.
fn copy(segment: &Segment, writer: &mut Writer<BufWriter<File>>) -> io::Result<bool> {
    let Ok(mut reader) = segment.open() else { return Ok(false) };
    let mut chunk = Chunk::default();
    loop {
        match reader.read(&mut chunk) {
            Ok(true) => writer.copy(&chunk)?,
            Ok(false) => return Ok(true),
            Err(_) => return Ok(false),
        }
    }
}

fn name(header: &Header) -> String {
    format!("{:08}-{:020}-{:020}", header.era, header.first, header.next)
}

/// Has the topic been made anew since the last segment was written? It ends before that does.
pub fn is_new_topic(segments: &[Segment], high: u64) -> bool {
    segments.last().is_some_and(|last| last.header.next > high)
}

/// What a restore reads: the segments, and what lies between and behind them from the topic, which has the offsets from
/// `low` to before `high`. What lies before the first segment has been given up on purpose.
pub fn steps(segments: &[Segment], low: u64, high: u64) -> Vec<Step> {
    let new_topic = is_new_topic(segments, high);
    let topic_era = segments.last().map_or(0, |last| last.header.era);
    let mut steps = Vec::new();
    let fill = |steps: &mut Vec<Step>, first: u64, next: u64, is_of_topic: bool| {
        let kept = if is_of_topic { low.clamp(first, next) } else { next };
        if first < kept {
            steps.push(Step::Gap { first, next: kept });
        }
        if kept < next {
            steps.push(Step::Topic { first: kept, next });
        }
    };
    for (number, segment) in segments.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &segments[before].header);
        if let Some(before) = before.filter(|before| before.era == segment.header.era) {
            let is_of_topic = before.era == topic_era && !new_topic;
            fill(&mut steps, before.next.min(segment.header.first), segment.header.first, is_of_topic);
        }
        steps.push(Step::Segment(number));
    }
    match segments.last() {
        Some(last) if !new_topic => fill(&mut steps, last.header.next, high, true),
        _ if low < high => steps.push(Step::Topic { first: low, next: high }),
        _ => {}
    }
    steps
}

/// What a snapshot must hold, at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Event time at which the window begins, if pages age.
    pub oldest: Option<u32>,
    /// Pages that the index has room for.
    pub capacity_pages: u64,
    /// Bytes on disk.
    pub max_bytes: u64,
}

/// How many of the first segments need not be kept, and how many more there is no room for.
///
/// The first kind: a later record begins a new window, every page is older than that, or those behind fill the index
/// without them: pages come back in the order in which they were remembered. The second: all together take more than
/// `max_bytes`. The last one always stays.
pub fn outdated(segments: &[Segment], limits: &Limits) -> (usize, usize) {
    let Limits { oldest, capacity_pages, max_bytes } = *limits;
    let begun = segments.iter().rposition(|segment| segment.header.window.is_some()).unwrap_or(0);
    let is_old = |header: &Header| header.untimed == 0 && oldest.is_some_and(|oldest| header.latest < oldest);
    let aged = segments.iter().take_while(|segment| is_old(&segment.header)).count();
    // What gave way in one segment may have been in any before it, so the two are set off against each other in sum: so
    // many pages behind are live at least.
    let (mut remembered, mut ended) = (0u64, 0u64);
    let crowded_out = segments.iter().rposition(|Segment { header, .. }| {
        let is_full = remembered.saturating_sub(ended) >= capacity_pages;
        (remembered, ended) = (remembered + header.remembered, ended + header.ended);
        is_full
    });
    let crowded_out = crowded_out.map_or(0, |last| last + 1);
    let needless = begun.max(aged).max(crowded_out).min(segments.len().saturating_sub(1));
    let mut bytes = segments[needless..].iter().map(Segment::bytes).sum::<u64>();
    let mut no_room = 0;
    while bytes > max_bytes && needless + no_room + 1 < segments.len() {
        bytes -= segments[needless + no_room].bytes();
        no_room += 1;
    }
    (needless, no_room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(era: u32, first: u64) -> Header {
        Header::new("0123abcd".into(), "", "crawl.state", era, first)
    }

    fn segment(era: u32, first: u64, next: u64) -> Segment {
        Segment { path: PathBuf::new(), header: Header { next, chunk_bytes: 1_000_000, ..header(era, first) } }
    }

    #[test]
    fn a_segment_grows_until_it_is_large() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::open(&place.path().join("new/one"), "crawl.state").expect("it can be made");
        let (mut last, mut at) = (None, 0u64);
        let record = vec![7; 1 << 20];
        for round in 0..10u64 {
            let mut draft = directory.begin(header(0, at), last.as_ref()).expect("it can be written");
            for _ in 0..10 {
                draft.writer.push(at, &record, |_| {}).expect("it can be written");
                at += 1;
            }
            last = Some(directory.publish(draft).expect("it can be published"));
            let found = directory.list().expect("it can be read");
            assert!(found.foreign.is_empty() && found.superseded.is_empty());
            assert_eq!(found.segments.len(), if round < 7 { 1 } else { 2 }, "round {round}");
            assert_eq!(steps(&found.segments, 0, at).len(), found.segments.len());
            let records = found.segments.iter().map(|segment| {
                let (mut reader, mut chunk) = (segment.open().expect("it is sound"), Chunk::default());
                let mut count = 0;
                while reader.read(&mut chunk).expect("it is sound") {
                    count += chunk.records().count();
                }
                count as u64
            });
            assert_eq!(records.sum::<u64>(), at);
        }
    }

    #[test]
    fn what_crashes_and_disks_leave_behind() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::open(place.path(), "crawl.state").expect("it is there");
        let write = |first: u64, next: u64| {
            let mut draft = directory.begin(header(0, first), None).expect("it can be written");
            (first..next).for_each(|at| draft.writer.push(at, b"record", |_| {}).expect("it can be written"));
            directory.publish(draft).expect("it can be published")
        };
        let [a, b, c] = [(0, 10), (0, 20), (20, 30)].map(|(first, next)| write(first, next));
        directory.begin(header(0, 30), None).expect("it can be written");
        let whole = fs::read(&c.path).expect("it is there");
        fs::write(&c.path, &whole[..whole.len() - 1]).expect("it can be written");
        fs::write(place.path().join("notes.segment"), b"no").expect("it can be written");
        let found = directory.list().expect("it can be read");
        assert_eq!(found.segments, [b, c.clone()]);
        assert_eq!(found.superseded, [a]);
        assert_eq!(found.foreign.len(), 1);
        directory.salvage(&c).expect("it can be written");
        assert_eq!(directory.list().expect("it is read").segments.len(), 1, "it had one chunk");
        directory.set_aside(&found.foreign[0].0).expect("it can be renamed");
        directory.remove_partial().expect("it can be removed");
        let left = fs::read_dir(place.path()).expect("it is there").count();
        assert_eq!(left, 2 + KEPT_DAMAGED);
        let elsewhere = Directory::open(place.path(), "other.state").expect("it is there").list().expect("it is read");
        assert_eq!((elsewhere.segments.len(), elsewhere.foreign.len()), (0, 2));
    }

    #[test]
    fn what_is_sound_of_a_segment_is_kept() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = Directory::open(place.path(), "crawl.state").expect("it is there");
        let mut draft = directory.begin(header(0, 0), None).expect("it can be written");
        (0..100).for_each(|at| draft.writer.push(at, &[3; 10_000], |_| {}).expect("it can be written"));
        let whole = directory.publish(draft).expect("it can be published");
        let mut bytes = fs::read(&whole.path).expect("it is there");
        let length = bytes.len();
        bytes[length / 2] ^= 1;
        fs::write(&whole.path, &bytes).expect("it can be written");
        directory.salvage(&whole).expect("it can be written");
        let left = directory.list().expect("it is read").segments;
        let next = left[0].header.next;
        assert!((26..50).contains(&next) && left.len() == 1, "{left:?}");
        let (mut reader, mut chunk, mut records) = (left[0].open().expect("it is sound"), Chunk::default(), 0);
        while reader.read(&mut chunk).expect("it is sound") {
            records += chunk.records().count() as u64;
        }
        assert_eq!((records, left[0].header.records), (next, next));

        // Nothing can be read of it, and its offsets are still known.
        let mut bytes = fs::read(&left[0].path).expect("it is there");
        bytes[100] ^= 1;
        fs::write(&left[0].path, bytes).expect("it can be written");
        let found = directory.list().expect("it is read");
        assert_eq!((found.segments[0].header.first, found.segments[0].header.next), (0, next));
        assert!(found.segments[0].open().is_err());
        directory.salvage(&found.segments[0]).expect("it is set aside");
        assert!(directory.list().expect("it is read").segments.is_empty());
    }

    #[test]
    fn a_restore_fills_the_holes_from_the_topic() {
        let none = steps(&[], 3, 9);
        assert_eq!(none, [Step::Topic { first: 3, next: 9 }]);
        assert_eq!(steps(&[], 9, 9), []);
        let segments = [segment(0, 10, 20), segment(0, 30, 40), segment(0, 40, 50)];
        let all =
            |steps: Vec<Step>| steps.into_iter().filter(|step| !matches!(step, Step::Segment(_))).collect::<Vec<_>>();
        let topic = |first, next| Step::Topic { first, next };
        let gap = |first, next| Step::Gap { first, next };
        assert_eq!(all(steps(&segments, 0, 60)), [topic(20, 30), topic(50, 60)]);
        assert_eq!(all(steps(&segments, 25, 50)), [gap(20, 25), topic(25, 30)]);
        assert_eq!(all(steps(&segments, 55, 60)), [gap(20, 30), gap(50, 55), topic(55, 60)]);
        // The topic was made anew: what lay between is gone.
        assert!(is_new_topic(&segments, 5));
        assert_eq!(all(steps(&segments, 0, 5)), [gap(20, 30), topic(0, 5)]);
        let eras = [segment(0, 10, 20), segment(1, 0, 5), segment(1, 8, 9)];
        assert_eq!(all(steps(&eras, 2, 9)), [topic(5, 8)]);
    }

    #[test]
    fn what_is_of_no_concern_goes_first() {
        let timed = |latest, untimed| {
            let mut segment = segment(0, 0, 1);
            (segment.header.latest, segment.header.untimed) = (latest, untimed);
            segment
        };
        let segments = [timed(10, 0), timed(30, 0), timed(20, 0), timed(40, 0)];
        let of = |segments: &[Segment], oldest, capacity_pages, max_bytes| {
            outdated(segments, &Limits { oldest, capacity_pages, max_bytes })
        };
        const ANY: u64 = u64::MAX;
        assert_eq!(of(&segments, None, ANY, ANY), (0, 0));
        assert_eq!(of(&segments, Some(11), ANY, ANY), (1, 0));
        assert_eq!(of(&segments, Some(31), ANY, ANY), (3, 0));
        assert_eq!(of(&segments, Some(99), ANY, ANY), (3, 0), "the last one stays");
        assert_eq!(of(&segments, Some(11), ANY, 2_500_000), (1, 1));
        assert_eq!(of(&segments, None, ANY, 0), (0, 3));
        assert_eq!(of(&[timed(10, 1), timed(30, 0)], Some(99), ANY, ANY), (0, 0), "a page without a time stays");
        let mut begun = segments.clone();
        begun[2].header.window = Some(7);
        assert_eq!(of(&begun, None, ANY, ANY), (2, 0));
        assert_eq!(of(&[], Some(1), 0, 0), (0, 0));
        let mut full = segments.clone();
        full.iter_mut().for_each(|segment| segment.header.remembered = 100);
        full[3].header.ended = 40;
        for (capacity, needless) in [(0, 3), (60, 3), (61, 2), (160, 2), (161, 1), (260, 1), (261, 0)] {
            assert_eq!(of(&full, None, capacity, ANY), (needless, 0), "{capacity}");
        }
        // The last one replaces more pages than it has: they were in those before it.
        full[3].header.ended = 150;
        for (capacity, needless) in [(1, 2), (50, 2), (51, 1), (150, 1), (151, 0)] {
            assert_eq!(of(&full, None, capacity, ANY), (needless, 0), "{capacity}");
        }
    }
}
