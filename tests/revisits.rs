//! A URL that is visited again and again in one stretch: every visit after the first is `updated`, though the table
//! still holds the entries of the versions before it. With those in the way only the first 64 were.

use std::fmt::Write;
use std::process::Command;

#[test]
fn every_visit_of_a_hot_url_is_seen_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut pages = String::new();
    for visit in 0..2_000u64 {
        let words = (0..50).map(|word| format!("w{}", (visit * 50 + word) * 7919 % 100_003)).collect::<Vec<_>>();
        writeln!(pages, r#"{{"url":"http://same.example/","text":"{}"}}"#, words.join(" ")).unwrap();
    }
    std::fs::write(path("pages.jsonl"), pages).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_pagesieve"))
        .args(["filter", "-q", &path("pages.jsonl"), "-o", &path("out"), "--report", &path("report")])
        .status()
        .unwrap();
    assert!(done.success());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path("report")).unwrap()).unwrap();
    assert_eq!((&report["unique"], &report["updated"]), (&1.into(), &1_999.into()));
    assert_eq!(report["index"]["pages"], 1);
}
