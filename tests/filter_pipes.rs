//! Guards the ways of pages into and out of `pagesieve filter`: pipes, compressed files, several inputs, readers that
//! go away; and that nothing is overwritten that is needed.

#[path = "support/crawl.rs"]
mod crawl;
#[path = "support/filter.rs"]
mod support;
#[path = "support/text.rs"]
mod text;

use crawl::{crawl, joined, lines};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use support::{Workshop, filter, line_of, pagesieve, piped};
use text::{Random, prose};

/// The output of a program fed with `input`; `None` if there is no such program.
fn program(name: &str, options: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let spawned = Command::new(name).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| println!("no {name}, not tested: {error}")).ok()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("all is read"));
        child.wait_with_output().expect("it ends")
    });
    assert!(output.status.success());
    Some(output.stdout)
}

#[test]
fn pipes() {
    let input = joined(&crawl(3, 500));
    let expected = filter(&input, &[], &[]).survivors();
    for options in [&["--quiet"][..], &["-", "--quiet"], &["-", "-o", "-", "--quiet"]] {
        assert_eq!(piped(&input, options).0, expected, "{options:?}");
    }
    let (output, stderr) = piped(&input, &[]);
    assert_eq!(output, expected, "what people read goes to standard error");
    assert!(stderr.contains("public key") && stderr.contains("survivors"), "{stderr}");
    assert!(!stderr.contains('\r') && !stderr.contains('\u{1b}'), "no progress bar without a terminal: {stderr:?}");
    let (output, stderr) = piped(b"", &["--quiet"]);
    assert_eq!((&*output, &*stderr), (&b""[..], ""));
}

#[test]
fn compressed_input_is_told_by_its_first_bytes() {
    let pages = crawl(4, 600);
    let (first, second) = (joined(&pages[..250]), joined(&pages[250..]));
    let whole = joined(&pages);
    let expected = filter(&whole, &[], &[]).survivors();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("memory compresses");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let gzip = |bytes: &[u8]| program("gzip", &["-c"], bytes);
    // Members and frames may end within a line.
    let cut = first.len() - 100;
    let mut forms = vec![
        ("plain in disguise", whole.clone()),
        ("zstd", zstd(&whole)),
        ("two frames", [zstd(&whole[..cut]), zstd(&whole[cut..])].concat()),
        ("a skippable frame first", [skippable, zstd(&whole)].concat()),
    ];
    if let (Some(all), Some(a), Some(b), Some(nothing)) = (gzip(&whole), gzip(&first), gzip(&second), gzip(b"")) {
        forms.push(("gzip", all));
        forms.push(("two members", [a.clone(), b.clone()].concat()));
        forms.push(("members without content", [nothing.clone(), a, nothing.clone(), b, nothing].concat()));
        forms.push((
            "members that end within a line",
            [gzip(&whole[..cut]), gzip(&whole[cut..])].map(Option::unwrap).concat(),
        ));
    }
    for (name, bytes) in &forms {
        for suffix in ["gz", "zst", "jsonl"] {
            let files = Workshop::new();
            let input = files.write(&format!("in.{suffix}"), bytes);
            let output = pagesieve().args(["filter", &input, "-q"]).output().expect("it starts");
            assert!(output.status.success(), "{name}.{suffix}: {output:?}");
            assert_eq!(output.stdout, expected, "{name}.{suffix}");
        }
        assert_eq!(piped(bytes, &["-q"]).0, expected, "{name} through a pipe");
    }
}

#[test]
fn a_damaged_archive_is_an_error_and_keeps_what_came_before() {
    let whole = joined(&crawl(5, 3000));
    let packed = zstd::encode_all(&*whole, 3).expect("memory compresses");
    let files = Workshop::new();
    let input = files.write("in.zst", &packed[..packed.len() - packed.len() / 4]);
    let output = pagesieve().args(["filter", &input, "-q"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("in.zst"), "{stderr}");
    let expected = filter(&whole, &[], &[]).survivors();
    let whole_lines = output.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    assert!(expected.starts_with(&output.stdout[..whole_lines]) && whole_lines > 0, "{} bytes", output.stdout.len());
}

#[test]
fn compressed_output_is_told_by_its_name() {
    let input = joined(&crawl(6, 600));
    let plain = filter(&input, &[], &[]);
    let files = Workshop::new();
    let (out, duplicates) = (files.path("out.gz"), files.path("duplicates.zst"));
    filter_in(&files, &input, &["-o", &out, "--duplicates", &duplicates, "--rejected", &files.path("rejected.gz")]);
    if let Some(output) = program("gzip", &["-dc"], &files.read("out.gz")) {
        assert_eq!(output, plain.survivors());
    }
    let unpacked = zstd::decode_all(&*files.read("duplicates.zst")).expect("it is whole");
    assert_eq!(lines(&unpacked).len(), plain.duplicates().len());
    let mut rejected = String::new();
    flate2::read::MultiGzDecoder::new(&*files.read("rejected.gz")).read_to_string(&mut rejected).expect("it is whole");
    assert_eq!(rejected.lines().count(), plain.rejected().len());
}

/// Filters `input`, written to `in.jsonl`, with these options, and succeeds.
fn filter_in(files: &Workshop, input: &[u8], options: &[&str]) {
    let path = files.write("in.jsonl", input);
    let output = pagesieve().args(["filter", &path, "-q"]).args(options).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn inputs_are_read_in_the_order_given() {
    let pages = crawl(7, 400);
    let whole = filter(&joined(&pages), &[], &[]);
    let files = Workshop::new();
    let first = files.write("a.jsonl", joined(&pages[..170]).strip_suffix(b"\n").unwrap());
    let second = files.write("b.jsonl", &joined(&pages[170..]));
    let (out, duplicates) = (files.path("out"), files.path("duplicates"));
    let output =
        pagesieve().args(["filter", &first, &second, "-q", "-o", &out, "--duplicates", &duplicates]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files.read("out"), whole.survivors());
    let expected: Vec<String> = whole
        .duplicates()
        .iter()
        .map(|line| line_of(&line["position"]))
        .map(|line| if line <= 170 { format!("{first}:{line}") } else { format!("{second}:{}", line - 170) })
        .collect();
    let found: Vec<String> =
        files.json_lines("duplicates").iter().map(|line| line["position"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, expected);
    let across = files.json_lines("duplicates").iter().any(|line| {
        let is_in = |value: &Value, file: &str| value["position"].as_str().unwrap().starts_with(file);
        is_in(line, &second) && is_in(&line["canonical"], &first)
    });
    assert!(across, "a page of the second input is a copy of one of the first");
}

/// Who reads the first lines only, as `head` does, gets no error: neither when much is left to write nor when a little
/// is, which is written only at the end.
#[test]
fn a_broken_pipe_is_no_error() {
    let pages: Vec<String> = (0..20_000)
        .map(|number| json!({"url": number, "text": prose(&mut Random(number), 40).join(" ")}).to_string())
        .collect();
    let files = Workshop::new();
    let input = files.write("in.jsonl", &joined(&pages));
    let mut child =
        pagesieve().args(["filter", &input]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = String::new();
    let mut stdout = BufReader::with_capacity(1 << 10, child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut first).expect("there is a line");
    assert_eq!(first.trim_end(), pages[0]);
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("error"), "{output:?}");

    for options in [&[][..], &["--tag"], &["-o", "/dev/null", "--duplicates", "-"]] {
        let mut command = pagesieve();
        command.args(["filter", "-"]).args(options);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(&joined(&[pages[0].clone(), pages[0].replace("\"url\":0", "\"url\":1")])).expect("it is read");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
}

#[test]
fn nothing_that_is_needed_is_overwritten() {
    let files = Workshop::new();
    let content = joined(&crawl(8, 50));
    let input = files.write("in.jsonl", &content);
    std::fs::hard_link(&input, files.path("hard")).expect("a link can be made");
    std::os::unix::fs::symlink(&input, files.path("soft")).expect("a link can be made");
    let detour = input.replace("in.jsonl", "./in.jsonl");
    let (out, out_detour) = (files.path("out"), files.path("./out"));
    let cases: [&[&str]; 8] = [
        &[&input, "-o", &input],
        &[&input, "-o", &detour],
        &[&input, "-o", &files.path("soft")],
        &[&input, "-o", &files.path("hard")],
        &[&input, "-o", "/dev/null", "--report", &input],
        &[&input, "-o", &out, "--duplicates", &out],
        &[&input, "-o", &out, "--rejected", &out_detour],
        &[&input, "-o", "-", "--duplicates", "-"],
    ];
    for options in cases {
        let output = pagesieve().args(["filter", "-q"]).args(options).output().expect("it starts");
        assert!(!output.status.success(), "{options:?}");
        assert_ne!(output.stderr, b"", "{options:?}");
        assert_eq!(files.read("in.jsonl"), content, "{options:?}");
    }
    // The same through a redirection of standard input.
    let stdin = std::fs::File::open(&input).expect("it is there");
    let output = pagesieve().args(["filter", "-q", "-o", &input]).stdin(stdin).output().expect("it starts");
    assert!(!output.status.success());
    assert_eq!(files.read("in.jsonl"), content);
    // What can be written to twice may be.
    let output =
        pagesieve().args(["filter", "-q", &input, "-o", "/dev/null", "--duplicates", "/dev/null"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
