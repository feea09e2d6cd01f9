//! The sites the sample crawl visits: a few hundred hosts under `.example`, a few of them far more popular than the
//! rest, each with the navigation it frames every page in and the manner of its URLs.

use super::random::{Odds, Random};
use super::text::Writer;
use super::time::civil;
use std::collections::HashSet;

/// How many sites there are.
const NUM_SITES: usize = 400;

const NAVIGATION: [&str; 32] = [
    "Home",
    "News",
    "About us",
    "Contact",
    "Search",
    "Sports",
    "Business",
    "Opinion",
    "Culture",
    "Travel",
    "Science",
    "Weather",
    "Video",
    "Archive",
    "Sign in",
    "Subscribe",
    "Newsletter",
    "Shop",
    "Events",
    "Jobs",
    "Podcasts",
    "Blog",
    "Help",
    "Forum",
    "Gallery",
    "Recipes",
    "Health",
    "Education",
    "Politics",
    "Local",
    "World",
    "Skip to content",
];
const SMALL_PRINT: [&str; 12] = [
    "Terms of use",
    "Privacy policy",
    "Cookies",
    "Imprint",
    "Advertise with us",
    "Accessibility",
    "Site map",
    "Follow us",
    "Back to top",
    "RSS",
    "Manage consent",
    "Report a mistake",
];

/// One site.
pub(super) struct Site {
    scheme: &'static str,
    host: String,
    header: String,
    footer: String,
    sections: Vec<String>,
    /// Whether its pages carry an `id` of their own.
    pub has_ids: bool,
}

impl Site {
    fn new(host: String, writer: &Writer, random: &mut Random) -> Self {
        let name = format!("{} {}", writer.name(random), writer.name(random));
        let sections: Vec<String> = (0..random.between(3, 7)).map(|_| writer.name(random)).collect();
        let mut header = vec![name.as_str()];
        header.extend((0..random.between(6, 14)).map(|_| random.pick(&NAVIGATION)));
        header.extend(sections.iter().map(String::as_str));
        let mut footer = vec![format!("© 2026 {name}. All rights reserved.")];
        footer.extend((0..random.between(2, 5)).map(|_| random.pick(&SMALL_PRINT).to_string()));
        Site {
            scheme: if random.chance(0.1) { "http" } else { "https" },
            header: header.join(random.pick(&[" ", " | ", "\n"])),
            footer: footer.join(random.pick(&[" ", " · "])),
            has_ids: random.chance(0.3),
            host,
            sections,
        }
    }

    /// The text of a page of this site: an article in the site's navigation.
    pub fn frame(&self, article: &[String]) -> String {
        let length = article.iter().map(|paragraph| paragraph.len() + 1).sum::<usize>();
        let mut text = String::with_capacity(self.header.len() + length + 1 + self.footer.len());
        text += &self.header;
        for paragraph in article {
            text.push('\n');
            text += paragraph;
        }
        text.push('\n');
        text += &self.footer;
        text
    }

    /// Words in the navigation.
    pub fn num_frame_words(&self) -> usize {
        let parts = self.header.split_whitespace().chain(self.footer.split_whitespace());
        // The bars and dots between the entries are none.
        parts.filter(|part| part.contains(char::is_alphanumeric)).count()
    }

    /// A URL that no other line has, for a page of the given title. Revisits apart, that is: they repeat one.
    pub fn url(&self, title: &str, (line, event_time_ms): (u64, i64), random: &mut Random) -> String {
        let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let slug = words.take(5).collect::<Vec<_>>().join("-").to_ascii_lowercase();
        let slug = if slug.is_empty() { "article" } else { &slug };
        let section = self.sections[random.below(self.sections.len())].to_ascii_lowercase();
        let (year, month, _) = civil(event_time_ms);
        let path = match random.below(5) {
            0 => format!("{year}/{month:02}/{slug}-{line}/"),
            1 => format!("{section}/{slug}-{line}.html"),
            2 => format!("{section}/{slug}?id={line}"),
            3 => format!("?p={line}"),
            _ => format!("{section}/{year}/{slug}-{line}"),
        };
        format!("{}://{}/{path}", self.scheme, self.host)
    }

    /// A URL of this site in another spelling that names the same page, or the same one.
    pub fn respell(&self, url: &str, random: &mut Random) -> String {
        let port = if self.scheme == "http" { 80 } else { 443 };
        match random.below(6) {
            0 => url.replacen(&self.host, &self.host.to_ascii_uppercase(), 1),
            1 => url.replacen(&self.host, &format!("{}:{port}", self.host), 1),
            2 => format!("{url}#comments"),
            _ => url.to_string(),
        }
    }
}

/// All sites and how often each is visited.
pub(super) struct Sites {
    sites: Vec<Site>,
    odds: Odds,
}

impl Sites {
    /// The sites of a seed; the first is the most popular.
    pub fn new(seed: u64, writer: &Writer) -> Self {
        let mut random = Random::new(seed);
        let mut hosts = HashSet::new();
        let mut sites = Vec::with_capacity(NUM_SITES);
        while sites.len() < NUM_SITES {
            let stem = writer.name(&mut random).to_ascii_lowercase();
            let prefix = random.pick(&["www.", "www.", "", "blog.", "shop."]);
            let suffix = random.pick(&["", "", "-news", "-online"]);
            if hosts.insert(stem.clone()) {
                sites.push(Site::new(format!("{prefix}{stem}{suffix}.example"), writer, &mut random));
            }
        }
        // The shift keeps the first site at 5 % of all pages.
        Sites { sites, odds: Odds::zipf(NUM_SITES, 4.0) }
    }

    /// The index of a site, a popular one more often.
    pub fn draw(&self, random: &mut Random) -> usize {
        self.odds.draw(random)
    }

    /// The site of an index.
    pub fn get(&self, index: usize) -> &Site {
        &self.sites[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_navigation_of_20_to_60_words() {
        let sites = Sites::new(1, &Writer::new(1));
        for site in &sites.sites {
            let num_words = site.num_frame_words();
            assert!((20..=60).contains(&num_words), "{num_words} words: {} {}", site.header, site.footer);
            assert!(site.host.ends_with(".example"), "{}", site.host);
        }
    }

    #[test]
    fn respelled_urls_name_the_same_page() {
        let (sites, mut random) = (Sites::new(1, &Writer::new(1)), Random::new(1));
        let site = sites.get(0);
        let url = site.url("The Brio of Cael", (12, 0), &mut random);
        let mut spellings = HashSet::new();
        for _ in 0..100 {
            let spelling = site.respell(&url, &mut random);
            let plain = spelling.replace(":443/", "/").replace(":80/", "/").replace("#comments", "");
            assert_eq!(plain.to_ascii_lowercase(), url.to_ascii_lowercase());
            spellings.insert(spelling);
        }
        assert_eq!(spellings.len(), 4);
    }
}
