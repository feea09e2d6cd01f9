//! Runs written by hand, each with what should be said of it.

use super::*;
use std::io::Write;
use std::path::Path;

/// A text of 100 words of which the last `num_own` are this page's own.
fn text(num_own: usize, own: &str) -> String {
    let words = (0..100).map(|at| if at < 100 - num_own { format!("w{at}") } else { format!("{own}{at}") });
    words.collect::<Vec<_>>().join(" ")
}

fn page(url: &str, text: &str) -> String {
    serde_json::json!({ "url": url, "text": text }).to_string()
}

fn duplicate(line: u64, verdict: &str, canonical: u64, resemblance: f64) -> String {
    let canonical = serde_json::json!({ "id": null, "url": null, "position": format!("pages:{canonical}") });
    serde_json::json!({
        "id": "x", "url": "u", "position": format!("pages:{line}"),
        "verdict": verdict, "canonical": canonical, "resemblance": resemblance,
    })
    .to_string()
}

/// The lines of a run; the test cases change them.
#[derive(Clone)]
struct Lines {
    pages: Vec<String>,
    survivors: Vec<String>,
    duplicates: Vec<String>,
    rejected: Vec<String>,
}

/// Seven pages: two survivors, a near copy (J = 92 / 100), an exact copy, a revisit, a bad line, and a near
/// copy that was missed.
fn run() -> Lines {
    let pages = vec![
        page("http://a/", &text(0, "")),
        page("http://b/", &text(100, "b")),
        page("http://c/", &text(4, "c")),
        page("http://d/", &text(0, "").to_uppercase()),
        page("http://A:80/", &text(0, "")),
        "not a page".to_owned(),
        page("http://e/", &text(4, "e")),
    ];
    Lines {
        survivors: [0, 1, 6].map(|at: usize| pages[at].clone()).into(),
        duplicates: vec![
            duplicate(3, "near_duplicate", 1, 0.9),
            duplicate(4, "exact_duplicate", 1, 1.0),
            duplicate(5, "unchanged", 1, 1.0),
        ],
        rejected: vec![r#"{"position":"pages:6","reason":"not_json"}"#.to_owned()],
        pages,
    }
}

fn evaluated(lines: &Lines) -> Evaluation {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, lines: &[String]| {
        let path = directory.path().join(name);
        let mut file = std::fs::File::create(&path).expect("it can be made");
        lines.iter().for_each(|line| writeln!(file, "{line}").expect("it can be written"));
        path
    };
    let files = Files {
        pages: vec![write("pages", &lines.pages).display().to_string()],
        survivors: write("survivors", &lines.survivors),
        duplicates: write("duplicates", &lines.duplicates),
        rejected: Some(write("rejected", &lines.rejected)),
        truth: None,
    };
    evaluate(&files, &Settings::new(&Config::default())).expect("the files can be read")
}

#[test]
fn a_run_that_keeps_its_contract() {
    let Evaluation { contract, overall, curve, near_duplicates, missed, .. } = evaluated(&run());
    assert_eq!(contract.breaches, Vec::<String>::new());
    let counts = [contract.pages, contract.survivors, contract.near_duplicates, contract.exact_duplicates];
    assert_eq!(counts, [7, 3, 1, 1]);
    assert_eq!([contract.unchanged, contract.rejected], [1, 1]);
    // Page 5 is a revisit: its own survivor is no stranger's.
    assert_eq!(overall.recall_085, Share { part: 2, whole: 3 });
    assert_eq!(overall.precision_075, Share { part: 3, whole: 3 });
    assert_eq!(overall.within_006, Share { part: 3, whole: 3 });
    assert_eq!((overall.pages, overall.drops), (6, 3));
    let exact = 92.0 / 100.0;
    assert_eq!(near_duplicates[0].exact, exact);
    assert!((overall.bias - (0.9 - exact)).abs() < 1e-12 && (overall.rmse - (exact - 0.9)).abs() < 1e-12);
    assert!(missed[0].position.ends_with("pages:7"), "{}", missed[0].position);
    assert_eq!(curve.iter().map(|point| (point.pages, point.dropped)).filter(|(pages, _)| *pages > 0).count(), 2);
}

#[test]
fn every_breach_is_seen() {
    type Change = fn(&mut Lines);
    let table: &[(&str, Change)] = &[
        ("went nowhere", |run| drop(run.survivors.remove(1))),
        ("went nowhere", |run| drop(run.survivors.pop())),
        ("is not the input line", |run| run.survivors.swap(0, 1)),
        ("went nowhere", |run| run.survivors[2].push(' ')),
        ("is not the input line", |run| run.survivors.push(run.survivors[0].clone())),
        ("among the duplicates twice", |run| run.duplicates.push(run.duplicates[0].clone())),
        ("both among the duplicates and rejected", |run| {
            run.rejected.push(r#"{"position":"pages:3"}"#.to_owned());
        }),
        ("is rejected twice", |run| run.rejected.push(run.rejected[0].clone())),
        ("is not a page of the input", |run| run.rejected.push(r#"{"position":"pages:60"}"#.to_owned())),
        ("not among the rejected lines", |run| {
            run.rejected.clear();
            run.survivors.insert(2, run.pages[5].clone());
        }),
        ("is not a page of the input", |run| run.duplicates.push(duplicate(60, "near_duplicate", 1, 0.9))),
        ("names no canonical", |run| run.duplicates[0] = duplicate(3, "near_duplicate", 60, 0.9)),
        ("came later", |run| run.duplicates[0] = duplicate(3, "near_duplicate", 7, 0.9)),
        ("is no survivor", |run| run.duplicates[1] = duplicate(4, "exact_duplicate", 5, 1.0)),
        ("has other words", |run| run.duplicates[0] = duplicate(3, "exact_duplicate", 1, 1.0)),
        ("below the threshold", |run| run.duplicates[0] = duplicate(3, "near_duplicate", 1, 0.79)),
    ];
    for (told, change) in table {
        let mut lines = run();
        change(&mut lines);
        let contract = evaluated(&lines).contract;
        assert!(contract.num_breaches > 0, "{told}");
        assert!(contract.breaches.iter().any(|breach| breach.contains(told)), "{told}: {:?}", contract.breaches);
    }
}

#[test]
fn survivors_that_a_filter_has_forgotten_are_not_missed() {
    let dated = |url: &str, text: String, day: u32| {
        serde_json::json!({ "url": url, "text": text, "fetched_at": format!("2026-01-{day:02}T00:00:00Z") }).to_string()
    };
    let table = [
        ("within the window", dated("http://b/", text(4, "b"), 6), 1),
        ("past the window", dated("http://b/", text(4, "b"), 9), 0),
        ("a revisit like its own version", dated("http://a/", text(4, "a"), 2), 0),
    ];
    for (name, second, missed) in table {
        let pages = vec![dated("http://a/", text(0, ""), 1), second];
        let lines = Lines { survivors: pages.clone(), pages, duplicates: vec![], rejected: vec![] };
        assert_eq!(evaluated(&lines).missed.len(), missed, "{name}");
    }
    // The version that resembled the third page has been replaced.
    let pages = vec![
        dated("http://a/", text(0, ""), 1),
        dated("http://a/", text(100, "a"), 2),
        dated("http://b/", text(4, "b"), 3),
    ];
    let lines = Lines { survivors: pages.clone(), pages, duplicates: vec![], rejected: vec![] };
    assert!(evaluated(&lines).missed.is_empty());
}

#[test]
fn positions_by_name_by_last_part_and_of_a_single_input() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        path.display().to_string()
    };
    let (one, two) = (page("http://a/", &text(0, "")), page("http://b/", &text(0, "")));
    let inputs = vec![write("one", &format!("{one}\n")), write("two", &format!("\n{two}\n"))];
    let duplicates = |position: &str, canonical: &str| {
        let line = duplicate(2, "exact_duplicate", 1, 1.0).replace("pages:2", position).replace("pages:1", canonical);
        write("duplicates", &line)
    };
    let evaluate = |pages: Vec<String>, duplicates: String| {
        let survivors = Path::new(&write("survivors", &one)).to_owned();
        let files = Files { pages, survivors, duplicates: duplicates.into(), ..Files::default() };
        evaluate(&files, &Settings::new(&Config::default())).map(|evaluation| evaluation.contract.num_breaches)
    };
    let exact = duplicates(&format!("{}:2", inputs[1]), &format!("{}:1", inputs[0]));
    assert_eq!(evaluate(inputs.clone(), exact).expect("known inputs"), 0);
    assert_eq!(evaluate(inputs.clone(), duplicates("./two:2", "one:1")).expect("known by their last part"), 0);
    assert!(evaluate(inputs, duplicates("three:2", "one:1")).is_err());
    let both = write("both", &format!("{one}\n{two}\n"));
    assert_eq!(evaluate(vec![both], duplicates("-:2", "-:1")).expect("a single input"), 0);
}
