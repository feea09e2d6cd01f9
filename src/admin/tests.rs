//! The admin port over a real socket.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::Value;

use super::*;

/// More than any answer here may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A loop whose beats last an hour, and one that is always late.
const PATIENT: Duration = Duration::from_secs(3_600);
const LATE: Duration = Duration::ZERO;

/// What a step of a test has the main loop report, or how it ends the server.
type Report = fn(&Health);
type End = fn(AdminServer);

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn start_within(limits: Limits, beat_limit: Duration) -> (AdminServer, Arc<Health>) {
    let health = Arc::new(Health::new(beat_limit));
    let server =
        serve_within(limits, any_port(), Arc::new(Metrics::new("1")), Arc::clone(&health)).expect("a free port");
    (server, health)
}

fn start(beat_limit: Duration) -> (AdminServer, Arc<Health>) {
    start_within(Limits::DEFAULT, beat_limit)
}

fn connect(server: &AdminServer) -> TcpStream {
    let stream = TcpStream::connect(server.local_addr()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

struct Answer {
    status: u16,
    /// Lower-cased.
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

fn request(server: &AdminServer, method: &str, path: &str) -> Answer {
    let mut stream = connect(server);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer in time");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn get(server: &AdminServer, path: &str) -> Answer {
    request(server, "GET", path)
}

#[test]
fn routes_and_what_is_none() {
    let (server, _health) = start(PATIENT);
    for (method, path, status) in [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/livez", 200),
        ("GET", "/readyz", 503),
        ("GET", "/api/v1/version", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/api/v1/", 404),
        ("POST", "/metrics", 405),
    ] {
        assert_eq!(request(&server, method, path).status, status, "{method} {path}");
    }
}

#[test]
fn metrics_in_the_text_format() {
    let (server, _health) = start(PATIENT);
    let answer = get(&server, "/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    assert!(answer.body.contains("\npagesieve_pages_total{verdict=\"unique\"} 0\n"), "{}", answer.body);
}

#[test]
fn version_names_the_program() {
    let (server, _health) = start(PATIENT);
    let version = get(&server, "/api/v1/version").json();
    assert_eq!(version, json!({ "name": "pagesieve", "version": env!("CARGO_PKG_VERSION") }));
}

#[test]
fn readyz_follows_the_life_of_the_process() {
    let (server, health) = start(PATIENT);
    let steps: [(&str, Report, u16, Value); 8] = [
        ("start", |_| {}, 503, json!({"ready": false, "state": "starting"})),
        (
            "restore",
            |it| it.set_restoring(Some(Duration::from_secs(12))),
            503,
            json!({"ready": false, "state": "restoring", "remaining_seconds": 12}),
        ),
        (
            "no estimate",
            |it| it.set_restoring(None),
            503,
            json!({"ready": false, "state": "restoring", "remaining_seconds": null}),
        ),
        ("restored", |it| it.set_stage(Stage::Joining), 503, json!({"ready": false, "state": "joining"})),
        ("joined", |it| it.set_ready(true), 200, json!({"ready": true, "state": "ready"})),
        ("left", |it| it.set_ready(false), 503, json!({"ready": false, "state": "joining"})),
        ("drain", |it| it.set_stage(Stage::Draining), 503, json!({"ready": false, "state": "draining"})),
        ("no way back", |it| it.set_ready(true), 503, json!({"ready": false, "state": "draining"})),
    ];
    for (step, report, status, body) in steps {
        report(&health);
        let answer = get(&server, "/readyz");
        assert_eq!((answer.status, answer.json()), (status, body), "{step}");
    }
}

#[test]
fn livez_while_the_loop_turns_or_restores() {
    for (case, beat_limit, stage, status) in [
        ("turning", PATIENT, Stage::Ready, 200),
        ("hanging", LATE, Stage::Ready, 503),
        ("hanging at the start", LATE, Stage::Starting, 503),
        ("restoring", LATE, Stage::Restoring, 200),
        ("hanging in the drain", LATE, Stage::Draining, 503),
    ] {
        let (server, health) = start(beat_limit);
        health.set_stage(stage);
        let answer = get(&server, "/livez");
        assert_eq!(answer.status, status, "{case}");
        assert_eq!(answer.json()["alive"], json!(status == 200), "{case}");
        assert!(answer.json()["last_beat_seconds"].is_u64(), "{case}");
    }
}

#[test]
fn beats_and_new_stages_start_the_age_afresh() {
    let an_hour_old = || {
        let mut health = Health::new(Duration::from_secs(60));
        // A machine may not have been up for an hour; then there is no such instant.
        health.origin = health.origin.checked_sub(PATIENT)?;
        Some(health)
    };
    let reports: [(&str, Report, bool); 4] = [
        ("nothing", |_| {}, false),
        ("a beat", Health::beat, true),
        ("a stage", |it| it.set_stage(Stage::Joining), true),
        ("a restore", |it| it.set_restoring(None), true),
    ];
    for (case, report, alive) in reports {
        let Some(health) = an_hour_old() else { return };
        report(&health);
        assert_eq!(health.is_alive(), alive, "{case}: {:?}", health.beat_age());
    }
}

#[test]
fn stages_survive_the_way_through_their_number() {
    let health = Health::new(PATIENT);
    assert_eq!(health.stage(), Stage::Starting);
    for stage in Stage::ALL {
        health.set_stage(stage);
        assert_eq!(health.stage(), stage);
    }
}

#[test]
fn a_port_in_use_is_an_error_of_the_start() {
    let (server, health) = start(PATIENT);
    let second = serve(server.local_addr(), Arc::new(Metrics::new("1")), health);
    assert_eq!(second.map(|it| it.local_addr()).map_err(|it| it.kind()), Err(io::ErrorKind::AddrInUse));
}

#[test]
fn stop_frees_the_port_and_so_does_a_drop() {
    let ends: [(&str, End); 2] = [("stop", AdminServer::stop), ("drop", drop)];
    for (case, end) in ends {
        let (server, health) = start(PATIENT);
        let addr = server.local_addr();
        assert_eq!(get(&server, "/livez").status, 200, "{case}");
        end(server);
        let again = serve(addr, Arc::new(Metrics::new("1")), health);
        assert_eq!(again.expect("the port is free").local_addr(), addr, "{case}");
    }
}

/// Reads until the other side closes, by end of input or reset.
fn wait_for_close(mut stream: TcpStream) {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn stop_does_not_wait_for_a_client_that_says_nothing() {
    let limits = Limits { drain: Duration::from_millis(50), ..Limits::DEFAULT };
    let (server, _health) = start_within(limits, PATIENT);
    let mut silent = connect(&server);
    silent.write_all(b"GET /livez HT").expect("it reads");
    assert_eq!(get(&server, "/livez").status, 200, "the silent one was accepted before");
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < PATIENCE.min(Limits::DEFAULT.connection_life));
    wait_for_close(silent);
}

#[test]
fn silent_clients_hold_a_place_only_for_a_life() {
    let limits = Limits { num_connections: 2, connection_life: Duration::from_millis(100), ..Limits::DEFAULT };
    let (server, _health) = start_within(limits, PATIENT);
    let mut half_a_request = connect(&server);
    half_a_request.write_all(b"GET /metrics HTTP/1.1\r\nHo").expect("it reads");
    let nothing_at_all = connect(&server);
    assert_eq!(get(&server, "/livez").status, 200, "waits for a place, then is answered");
    wait_for_close(half_a_request);
    wait_for_close(nothing_at_all);
}

#[test]
fn a_connection_serves_several_requests_and_then_ends() {
    let limits = Limits { connection_life: Duration::from_secs(1), ..Limits::DEFAULT };
    let (server, _health) = start_within(limits, PATIENT);
    let mut stream = connect(&server);
    for _ in 0..3 {
        stream.write_all(b"HEAD /livez HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer in time");
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"));
    }
    wait_for_close(stream);
}
