//! The pages of a run: few words, many copies, and everything that can be wrong with a record.

use super::log::Record;
use super::text::{Random, prose};

/// A page and what is known of it.
pub struct Page {
    pub record: Record,
    /// Pages of one cluster are copies of each other. `None`: not a page.
    pub cluster: Option<usize>,
    /// Its words, if it has any.
    pub text: String,
}

/// Pages, one after the other, without end.
pub struct Pages {
    random: Random,
    clusters: Vec<Vec<String>>,
    /// Address → cluster and text of the page last seen there.
    urls: Vec<(usize, String)>,
    /// Event time of the next page in seconds.
    now: i64,
}

const START: i64 = 1_790_000_000;

impl Pages {
    pub fn new(random: Random) -> Self {
        Self { random, clusters: Vec::new(), urls: Vec::new(), now: START }
    }

    /// The crawler's clock jumps.
    pub fn step_clock(&mut self, seconds: i64) {
        self.now += seconds;
    }

    /// The next page.
    pub fn next(&mut self) -> Page {
        self.now += self.random.below(3) as i64;
        match self.random.below(40) {
            0 => self.bad(),
            1 if !self.urls.is_empty() => self.tombstone(),
            2..=4 if !self.urls.is_empty() => self.revisit(),
            5 => {
                let text = ["not found", "sign in", "not found here"][self.random.below(3)];
                self.page(None, text.to_owned(), None)
            }
            6..=21 if !self.clusters.is_empty() => self.copy(),
            _ => {
                let words = 24 + self.random.below(24);
                let text = prose(&mut self.random, words).join(" ");
                self.clusters.push(vec![text.clone()]);
                self.page(Some(self.clusters.len() - 1), text, None)
            }
        }
    }

    /// A recent cluster more often than an old one.
    fn cluster(&mut self) -> usize {
        let back = self.random.below(self.clusters.len()).min(self.random.below(self.clusters.len()));
        self.clusters.len() - 1 - back
    }

    fn edited(&mut self, text: &str) -> String {
        let mut words = text.split(' ').collect::<Vec<_>>();
        // At an end, so that few shingles change.
        let at = if self.random.below(2) == 0 { 0 } else { words.len() - 1 };
        words[at] = prose(&mut self.random, 1)[0];
        words.join(" ")
    }

    fn copy(&mut self) -> Page {
        let cluster = self.cluster();
        let of = self.random.below(self.clusters[cluster].len());
        let mut text = self.clusters[cluster][of].clone();
        if self.random.below(3) > 0 {
            text = self.edited(&text);
        }
        self.clusters[cluster].push(text.clone());
        self.page(Some(cluster), text, None)
    }

    fn revisit(&mut self) -> Page {
        let url = self.random.below(self.urls.len());
        let (cluster, text) = self.urls[url].clone();
        let (cluster, text) = match self.random.below(3) {
            0 => (cluster, text),
            1 => (cluster, self.edited(&text)),
            _ => {
                let text = prose(&mut self.random, 30).join(" ");
                self.clusters.push(vec![text.clone()]);
                (self.clusters.len() - 1, text)
            }
        };
        self.page(Some(cluster), text, Some(url))
    }

    fn url(number: usize) -> String {
        format!("https://host{}.example/{number}", number % 7)
    }

    fn page(&mut self, cluster: Option<usize>, text: String, url: Option<usize>) -> Page {
        let url = url.unwrap_or(self.urls.len());
        if url == self.urls.len() {
            self.urls.push((0, String::new()));
        }
        if let Some(cluster) = cluster {
            self.urls[url] = (cluster, text.clone());
        }
        let url = Self::url(url);
        // Some too large for the output.
        let padding = if self.random.below(60) == 0 { "x".repeat(6_000) } else { String::new() };
        let too_large = !padding.is_empty();
        let value = serde_json::json!({ "url": url, "text": text, "fetched_at": self.now, "more": padding });
        let record = Record {
            key: Some(url.into_bytes()),
            value: Some(value.to_string().into_bytes()),
            timestamp_ms: Some(self.now * 1000),
            headers: vec![("crawl".into(), Some(b"1".to_vec()))],
        };
        Page { record, cluster: cluster.filter(|_| !too_large), text }
    }

    fn tombstone(&mut self) -> Page {
        let url = Self::url(self.random.below(self.urls.len()));
        let record = Record { key: Some(url.into_bytes()), timestamp_ms: Some(self.now * 1000), ..Record::default() };
        Page { record, cluster: None, text: String::new() }
    }

    fn bad(&mut self) -> Page {
        const BAD: [&[u8]; 6] = [b"", b"{", b"\xff\xfe", b"[]", b"{\"text\":1}", b"{\"text\":\"\\u0000\"}}"];
        let value = BAD[self.random.below(BAD.len())].to_vec();
        let record = Record { value: Some(value), timestamp_ms: Some(self.now * 1000), ..Record::default() };
        Page { record, cluster: None, text: String::new() }
    }
}
