//! What must hold of everything committed, whatever happened.
//!
//! (a) every cluster of copies has a survivor; (b) every page has a fate: survivor, verdict record or dead letter;
//! (c) no page has two; (d) every drop names another page that was emitted, and resembles it; (e) verdicts are those of an
//! uninterrupted run over the pages in the order of their commits.

use super::Scene;
use super::clients::Shared;
use super::log::{Position, Record};
use super::pages::Page;
use pagesieve::generate::resemblance;
use pagesieve::index::Origin;
use pagesieve::index::judge::{Judge, Rules};
use pagesieve::page::decode::Decoder;
use pagesieve::pipeline::sketch_stage::SketchStage;
use pagesieve::sketch::Sketcher;
use pagesieve::transport::kafka::Partitions;
use std::collections::{BTreeMap, BTreeSet};

/// Times that each rule was asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Verdicts {
    pub clusters: u64,
    pub fates: u64,
    pub singles: u64,
    pub drops: u64,
    pub verdicts: u64,
    /// Pages that were received more than once.
    pub received_again: u64,
}

/// Wrong things that are worth listing of one run.
const MAX_LISTED: usize = 8;

#[derive(Debug, Clone, PartialEq)]
struct Fate {
    survived: bool,
    verdict: String,
    canonical: Option<Position>,
}

fn position(text: &str) -> Position {
    let mut parts = text.rsplitn(3, '/');
    let offset = parts.next().and_then(|it| it.parse().ok());
    let partition = parts.next().and_then(|it| it.parse().ok());
    let position = (|| Some((parts.next()?.to_owned(), partition?, offset?)))();
    position.unwrap_or_else(|| panic!("{text} is no position"))
}

/// What was committed of each page.
fn fates(scene: &Scene, world: &Shared) -> BTreeMap<Position, Vec<Fate>> {
    let output = &scene.config.output;
    let mut fates: BTreeMap<Position, Vec<Fate>> = BTreeMap::new();
    for (_, record) in world.log.committed_records(&output.topic) {
        let origin = position(record.header("pagesieve-origin").expect("every survivor says where it came from"));
        let verdict = record.header("pagesieve-verdict").expect("and why").to_owned();
        let canonical = record.header("pagesieve-canonical-position").map(position);
        fates.entry(origin).or_default().push(Fate { survived: true, verdict, canonical });
    }
    for (_, record) in world.log.committed_records(output.verdict_topic.as_ref().expect("there is one")) {
        let value = record.value.as_deref().unwrap_or_default();
        let value: serde_json::Value = serde_json::from_slice(value).expect("verdict records are JSON");
        let origin = position(value["origin"].as_str().expect("with an origin"));
        let verdict = value["verdict"].as_str().expect("and a verdict").to_owned();
        let canonical = value["canonical"]["position"].as_str().map(position);
        fates.entry(origin).or_default().push(Fate { survived: false, verdict, canonical });
    }
    for (_, record) in world.log.committed_records(&output.dead_letter_topic) {
        let header = |name: &str| record.header(name).unwrap_or_else(|| panic!("a dead letter without {name}"));
        let partition = header("pagesieve-error-partition").parse().expect("a number");
        let offset = header("pagesieve-error-offset").parse().expect("a number");
        let origin = (header("pagesieve-error-topic").to_owned(), partition, offset);
        fates.entry(origin).or_default().push(Fate { survived: false, verdict: "rejected".into(), canonical: None });
    }
    fates
}

/// Adds what is wrong to `violations`.
pub fn judge(scene: &Scene, world: &Shared, sent: &BTreeMap<Position, Page>, violations: &mut Vec<String>) -> Verdicts {
    let fates = fates(scene, world);
    let emitted = fates.iter().filter(|(_, fates)| fates.iter().any(|fate| fate.survived));
    let emitted = emitted.map(|(origin, _)| origin).collect::<BTreeSet<_>>();
    let mut asked = Verdicts::default();
    let mut wrong = Vec::new();

    // What the broker refuses cannot survive; a cluster of nothing else need not.
    let mut clusters: BTreeMap<usize, bool> = BTreeMap::new();
    for (origin, page) in sent {
        let is_emitted = emitted.contains(origin);
        if let Some(cluster) = page.cluster.filter(|_| is_emitted || !world.refused.contains(origin)) {
            *clusters.entry(cluster).or_default() |= is_emitted;
        }
        if !fates.contains_key(origin) {
            wrong.push(format!("(b) {origin:?} is lost"));
        }
    }
    asked.clusters = clusters.len() as u64;
    asked.fates = sent.len() as u64;
    for (cluster, _) in clusters.iter().filter(|(_, alive)| !**alive) {
        let pages = sent.iter().filter(|(_, page)| page.cluster == Some(*cluster));
        let fates = pages.map(|(origin, _)| format!("{origin:?}: {:?}", fates.get(origin))).collect::<Vec<_>>();
        wrong.push(format!("(a) cluster {cluster} has no survivor: {}", fates.join("; ")));
    }

    for (origin, all) in &fates {
        let Some(page) = sent.get(origin) else {
            wrong.push(format!("(b) {origin:?} was never sent"));
            continue;
        };
        asked.singles += u64::from(scene.exactly_once);
        if all.len() > 1 && scene.exactly_once {
            wrong.push(format!("(c) {origin:?} has {} fates: {all:?}", all.len()));
        }
        asked.drops += all.iter().filter(|fate| !fate.survived && fate.verdict != "rejected").count() as u64;
        if page.cluster.is_some()
            && !world.refused.contains(origin)
            && all.iter().any(|fate| fate.verdict == "rejected")
        {
            wrong.push(format!("(b) {origin:?} is rejected, and nothing is wrong with it: {all:?}"));
        }
        if all.iter().any(|fate| fate.canonical.as_ref() == Some(origin)) {
            wrong.push(format!("(d) {origin:?} is a copy of itself: {all:?}"));
        }
        let complaints = all.iter().filter_map(|fate| complaint(page, fate, &emitted, sent)).collect::<Vec<_>>();
        // At least once: what was said of a page before a fault undid it is said again, and differently.
        if scene.exactly_once || complaints.len() == all.len() {
            wrong.extend(complaints.into_iter().map(|what| format!("(d) {origin:?} {what}")));
        }
    }
    asked.received_again = world.received.values().filter(|times| **times > 1).count() as u64;
    if scene.is_comparable(world) {
        asked.verdicts = compare(scene, world, sent, &fates, &mut wrong);
    }
    let more = wrong.len().saturating_sub(MAX_LISTED);
    violations.extend(wrong.into_iter().take(MAX_LISTED));
    if more > 0 {
        violations.push(format!("and {more} more"));
    }
    asked
}

/// (d)
fn complaint(
    page: &Page,
    fate: &Fate,
    emitted: &BTreeSet<&Position>,
    sent: &BTreeMap<Position, Page>,
) -> Option<String> {
    let verdict = &fate.verdict;
    let Some(canonical) = &fate.canonical else {
        return (!fate.survived && verdict != "rejected").then(|| format!("is {verdict} of nothing"));
    };
    if !emitted.contains(canonical) {
        return Some(format!("is {verdict} of {canonical:?}, which was never emitted"));
    }
    let apart = !fate.survived && !resembles(verdict, &page.text, &sent[canonical].text);
    apart.then(|| format!("is no {verdict} of {canonical:?}"))
}

fn resembles(verdict: &str, a: &str, b: &str) -> bool {
    // The threshold less five standard errors of an estimate at 0.8 between such pages.
    const SURELY_APART: f64 = 0.8 - 5.0 * 0.0135;
    if verdict == "exact_duplicate" { a == b } else { resemblance(a, b) >= SURELY_APART }
}

/// (e)
fn compare(
    scene: &Scene,
    world: &Shared,
    sent: &BTreeMap<Position, Page>,
    fates: &BTreeMap<Position, Vec<Fate>>,
    wrong: &mut Vec<String>,
) -> u64 {
    let partitions = Partitions::default();
    for (topic, partition) in world.log.partitions(&scene.config.input.topics[0]) {
        partitions.number(&topic, partition);
    }
    let mut stage = SketchStage::new(Decoder::new(&scene.config.input), Sketcher::new(scene.shape, &scene.key))
        .with_record_timestamps();
    let rules = Rules::new(&scene.config.policy, &scene.config.window, &scene.shape);
    let mut judge = Judge::new(rules, scene.plan.clone());
    let mut compared = 0;
    for origin in &world.log.order {
        let Some(fate) = fates.get(origin).and_then(|fates| fates.first()) else { continue };
        if fate.verdict == "rejected" {
            continue;
        }
        let record: &Record = &sent[origin].record;
        let number = partitions.number(&origin.0, origin.1).expect("few partitions");
        let sketched = stage.run(scene.received(record, Origin { source: number, offset: origin.2 }));
        let judged = pagesieve::batch::judge(&mut judge, sketched);
        judge.seal();
        judge.commit();
        let page = &judged.judged[0];
        let canonical = page.canonical.as_ref().map(|canonical| {
            let (topic, partition) = partitions.name(canonical.origin.source);
            (topic.to_string(), partition, canonical.origin.offset)
        });
        compared += 1;
        // Headers of what is not tagged do not name a canonical.
        let same = fate.verdict == page.verdict.name() && (fate.canonical.is_none() || fate.canonical == canonical);
        if !same {
            let plain = page.verdict.name();
            wrong.push(format!("(e) {origin:?} is {fate:?}, uninterrupted {plain} of {canonical:?}"));
            break;
        }
    }
    compared
}
