//! A sample crawl with known truth: pages as JSON lines, each with the verdict a filter should give and why.
//!
//! ```text
//! fresh  ─┬─▶ near copy (redated, syndicated, reworded, cut, …; resemblance counted exactly)
//!         ├─▶ exact copy (same words, other typing)
//!         └─▶ revisit, unchanged or updated
//! short  ───▶ short copy            late, skipped, bad: on their own
//! ```
//!
//! The crawl is a function of its [`Settings`]: the same lines for ever on every machine, and a longer crawl begins
//! with the shorter one of the same seed. Nothing here reads a clock or a file. Memory is bounded by the few thousand
//! pages that copies are made from.
//!
//! The truth holds for a filter that remembers the survivors of the last `window_seconds` and of at least the last
//! 100,000 pages. So that it does, only pages that surely survive are copied, and a page is copied no more once a
//! copy of it may have survived: a later copy might resemble that one more than the page itself.

mod edit;
mod line;
mod random;
mod settings;
mod sites;
mod sources;
mod text;
mod time;
mod truth;
mod words;

pub use self::settings::Settings;
pub use self::truth::{Kind, Truth, resemblance};

use self::edit::{Body, Editor, respace, retype};
use self::line::{Flaw, Page};
use self::random::{Random, mix};
use self::settings::{MAX_WORDS, MIN_WORDS};
use self::sites::Sites;
use self::sources::{Source, Sources};
use self::text::{Style, Writer};
use self::truth::{SURELY_NEAR, expected};

/// Standard deviation of the logarithm of the length, which puts the median at 0.75 of the mean: √(2 ln(1 / 0.75)).
const LENGTH_SIGMA: f64 = 0.7585;

/// Three times the 101 pages after which a filter's clock runs.
const FIRST_LATE_LINE: u64 = 301;

/// A generated page.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The line without its line break: a JSON object, or what is left of one. Never blank, never with a line break.
    pub line: Vec<u8>,
    /// The URL, if the line has a readable one.
    pub url: Option<String>,
    /// `fetched_at` in milliseconds since 1970, if the line has a readable one.
    pub event_time_ms: Option<i64>,
    /// What is known of it.
    pub truth: Truth,
}

/// The pages of a crawl, one after the other.
pub struct Generator {
    settings: Settings,
    random: Random,
    writer: Writer,
    sites: Sites,
    fresh: Sources,
    short: Sources,
    /// Lines so far.
    line: u64,
}

/// A page under way to its line.
struct Draft {
    kind: Kind,
    url: String,
    body: Body,
    text: String,
    of: Option<u64>,
    resemblance: Option<f64>,
}

impl Draft {
    /// A copy of `source` with the given URL and text.
    fn copy(kind: Kind, source: &Source, url: String, text: String) -> Self {
        Draft { kind, url, text, body: source.body.clone(), of: Some(source.line), resemblance: Some(1.0) }
    }
}

impl Generator {
    /// The generator of a crawl whose settings have passed [`Settings::check`].
    pub fn new(settings: Settings) -> Self {
        let writer = Writer::new(mix(settings.seed));
        Generator {
            random: Random::new(settings.seed),
            sites: Sites::new(!mix(settings.seed), &writer),
            writer,
            settings,
            fresh: Sources::default(),
            short: Sources::default(),
            line: 0,
        }
    }

    /// What the next page is to be.
    fn draw_kind(&mut self) -> Kind {
        let random = &mut self.random;
        let mut left = random.unit();
        let drawn = self.settings.shares().into_iter().find_map(|(name, share)| {
            left -= share;
            (left < 0.0).then_some(name)
        });
        match drawn {
            Some("near_copies") => Kind::NearCopy,
            Some("exact_copies") => Kind::ExactCopy,
            Some("revisits") if random.chance(0.5) => Kind::RevisitUnchanged,
            Some("revisits") => Kind::RevisitUpdated,
            Some("short") if random.chance(1.0 / 3.0) => Kind::ShortCopy,
            Some("short") => Kind::Short,
            Some("late") if self.line >= FIRST_LATE_LINE => Kind::Late,
            Some("skipped") => Kind::Skipped,
            Some("bad") => Kind::Bad,
            _ => Kind::Fresh,
        }
    }

    /// The event time of the next page: rising with the lines, most of them up to two seconds late, some a minute.
    fn draw_event_time(&mut self, kind: Kind) -> i64 {
        let random = &mut self.random;
        let start_ms = self.settings.start_epoch_seconds * 1_000;
        if kind == Kind::Late {
            // An hour to thirty days before the window of the first page.
            return start_ms - self.settings.window_seconds * 1_000 - random.between(3_600_000, 2_592_000_000) as i64;
        }
        let longest_delay_ms = if random.chance(0.9) { 2_000 } else { 60_000 };
        let delay_ms = random.below(longest_delay_ms) as i64;
        start_ms + ((self.line - 1) as f64 / self.settings.pages_per_second * 1_000.0) as i64 + delay_ms
    }

    /// An edited copy of a page under another URL, or the page again with other words.
    fn edited(&mut self, kind: Kind, source: &Source, event_time_ms: i64) -> Draft {
        let random = &mut self.random;
        let editor = Editor { writer: &self.writer, sites: &self.sites };
        let mut body = match kind {
            Kind::NearCopy => editor.near_copy(&source.body, random),
            _ => editor.update(&source.body, random),
        };
        let source_text = self.sites.get(source.body.site).frame(&source.body.article);
        let site = self.sites.get(body.site);
        let (text, resemblance) = loop {
            let text = site.frame(&body.article);
            let resemblance = resemblance(&source_text, &text);
            if resemblance < 1.0 {
                break (text, resemblance);
            }
            // The edit came to nothing: the words are still the same.
            editor.change_one_word(&mut body, random);
        };
        let url = match kind {
            Kind::NearCopy => site.url(&body.article[0], (self.line, event_time_ms), random),
            _ => site.respell(&source.url, random),
        };
        Draft { kind, url, body, text, of: Some(source.line), resemblance: Some(resemblance) }
    }

    /// A page made from an earlier one, if there is one to make it from.
    fn copied(&mut self, kind: Kind, event_time_ms: i64) -> Option<Draft> {
        // A tenth of the window is left as a margin for pages that are out of order.
        let oldest_ms = event_time_ms - self.settings.window_seconds * 900;
        let sources = if kind == Kind::ShortCopy { &mut self.short } else { &mut self.fresh };
        let source = sources.take(oldest_ms, &mut self.random)?;
        let draft = match kind {
            Kind::NearCopy | Kind::RevisitUpdated => self.edited(kind, &source, event_time_ms),
            _ => self.retyped(kind, &source, event_time_ms),
        };
        match kind {
            // The source has been replaced, or has a survivor beside it that later copies may resemble more.
            Kind::RevisitUpdated => {}
            Kind::NearCopy if draft.resemblance < Some(SURELY_NEAR) => {}
            Kind::ShortCopy => self.short.put_back(source),
            _ => self.fresh.put_back(source),
        }
        Some(draft)
    }

    /// An earlier page with the same words.
    fn retyped(&mut self, kind: Kind, source: &Source, event_time_ms: i64) -> Draft {
        let random = &mut self.random;
        let body = &source.body;
        let site = self.sites.get(body.site);
        if kind == Kind::RevisitUnchanged {
            let url = site.respell(&source.url, random);
            return Draft::copy(kind, source, url, site.frame(&body.article));
        }
        let elsewhere = if random.chance(0.5) { self.sites.draw(random) } else { body.site };
        let url = self.sites.get(elsewhere).url(&body.article[0], (self.line, event_time_ms), random);
        let text = match kind {
            Kind::ShortCopy => respace(&body.article[0], random),
            _ => retype(&site.frame(&body.article), random),
        };
        Draft::copy(kind, source, url, text)
    }

    /// A page that owes nothing to another one, of a random length and site.
    fn original(&mut self, kind: Kind, event_time_ms: i64) -> Draft {
        let random = &mut self.random;
        let style = match random.below(200) {
            0 => Style::Cyrillic,
            1 => Style::Han,
            2..=9 => Style::Typographic,
            _ => Style::Plain,
        };
        let site = self.sites.draw(random);
        let median = 0.75 * f64::from(self.settings.mean_words);
        let num_words = random.log_normal(median, LENGTH_SIGMA).clamp(MIN_WORDS, MAX_WORDS) as usize;
        let num_article_words =
            num_words.saturating_sub(self.sites.get(site).num_frame_words()).max(MIN_WORDS as usize);
        let voice = self.writer.voice(style, random);
        let article = self.writer.article(&voice, num_article_words, random);
        let url = self.sites.get(site).url(&article[0], (self.line, event_time_ms), random);
        let text = self.sites.get(site).frame(&article);
        Draft { kind, url, text, body: Body { site, style, article }, of: None, resemblance: None }
    }

    /// A page of at most eleven words, the line's number among them, so that no two are alike.
    fn short(&mut self, kind: Kind, event_time_ms: i64) -> Draft {
        let random = &mut self.random;
        let opening = random.pick(&[
            "Page not found:",
            "Please sign in to read no.",
            "Redirecting to document",
            "Enable cookies to see page",
            "Out of stock: article",
        ]);
        let mut text = format!("{opening} {}", self.line);
        for _ in 0..random.below(5) {
            text.push(' ');
            text += self.writer.word(random);
        }
        let site = self.sites.draw(random);
        let url = self.sites.get(site).url("", (self.line, event_time_ms), random);
        let body = Body { site, style: Style::Plain, article: vec![text.clone()] };
        Draft { kind, url, body, text, of: None, resemblance: None }
    }

    /// Keeps a page that surely survives, so that it can be copied.
    fn remember(&mut self, draft: Draft, event_time_ms: i64) {
        let sources = match (draft.kind, draft.body.style) {
            // Where words are not set apart by spaces, filters differ on what a word is and so on the resemblance.
            (Kind::Fresh, Style::Plain | Style::Typographic | Style::Cyrillic) => &mut self.fresh,
            (Kind::Short, _) => &mut self.short,
            _ => return,
        };
        let source = Source { line: self.line, url: draft.url, body: draft.body, event_time_ms };
        sources.keep(source, &mut self.random);
    }
}

impl Iterator for Generator {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.line == self.settings.pages {
            return None;
        }
        self.line += 1;
        let kind = self.draw_kind();
        let event_time_ms = self.draw_event_time(kind);
        let draft = match kind {
            Kind::NearCopy | Kind::ExactCopy | Kind::RevisitUnchanged | Kind::RevisitUpdated | Kind::ShortCopy => {
                self.copied(kind, event_time_ms).unwrap_or_else(|| self.original(Kind::Fresh, event_time_ms))
            }
            Kind::Fresh | Kind::Late | Kind::Bad => self.original(kind, event_time_ms),
            Kind::Short | Kind::Skipped => self.short(kind, event_time_ms),
        };

        let mut page = Page::new(draft.url.clone(), event_time_ms, draft.text.clone(), &mut self.random);
        page.title.clone_from(&draft.body.article[0]);
        page.language = draft.body.style.language();
        if self.sites.get(draft.body.site).has_ids {
            page.set_id(self.line);
        }
        let mut truth = Truth {
            line: self.line,
            kind: draft.kind,
            of: draft.of,
            resemblance: draft.resemblance,
            expect: expected(draft.kind, draft.resemblance).into(),
            reason: None,
        };
        let mut readable = true;
        let line = match draft.kind {
            Kind::Skipped => {
                truth.reason = Some(page.make_unjudgeable(&mut self.random).into());
                page.line()
            }
            Kind::Bad => {
                let flaw = self.random.pick(&Flaw::ALL);
                truth.reason = Some(flaw.reason().into());
                readable = flaw.leaves_json();
                flaw.spoil(page, &mut self.random)
            }
            _ => page.line(),
        };
        let url = readable.then(|| draft.url.clone());
        self.remember(draft, event_time_ms);
        Some(Record { line, url, event_time_ms: readable.then_some(event_time_ms), truth })
    }
}

#[cfg(test)]
mod tests;
