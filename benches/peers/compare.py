"""pagesieve beside gaoya, rensa and datasketch: speed and memory, then recall and precision. For `make bench-peers`.

    compare.py PAGESIEVE CACHE       the peers are in CACHE, put there by setup.sh; pages and results go to CACHE/work

Any tool that fails, judges another number of pages or breaks the contract of `filter` ends the comparison.
"""

import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pages as corpora

# Width of a page's sketch in bytes → the setting that makes it so.
WIDTHS = {width: {"PAGESIEVE__SKETCH__BYTES": str(width)} for width in (32, 64, 128, 256)}
DEFAULT_WIDTH = 64

# Edited pages to each page of the speed table: their truth takes longer than their filtering.
EDITED_SHARE = 0.6

# Of so many runs in turn the fastest counts; a tool whose first took long runs fewer times.
RUNS = 5
SLOW_SECONDS, SLOW_RUNS = 8, 2

# Keys of pagesieve and seeds of the peers; fewer of datasketch, which takes longest. Its worst is then of fewer.
NUM_SEEDS, DATASKETCH_SEEDS = 5, 3

# Share of the core that a run needs for its time to be its own.
QUIET = 0.9

# Pages of the small run that a process's size is measured from.
FEW_PAGES = 500

MIN_SHINGLES = 8


def number_from(name, default, least):
    """A whole number from the environment."""
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise SystemExit(f"{name}={text}: a whole number of at least {least} is needed")
    return int(text)


NUM_PAGES = number_from("PEERS_PAGES", 50_000, 2_000)
SIEVE, CACHE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
WORK = CACHE / "work"
CORE = str(min(os.sched_getaffinity(0)))
STARTED = time.monotonic()


def say(text):
    """A line of progress."""
    print(f"peers: {time.monotonic() - STARTED:4.0f} s  {text}", file=sys.stderr, flush=True)


def environment(seed=0, width=DEFAULT_WIDTH):
    """Settings of pagesieve from this script only; peers stay on one thread."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PAGESIEVE__")}
    key = hashlib.blake2b(str(seed).encode(), digest_size=16).hexdigest()
    return clean | WIDTHS[width] | {"PAGESIEVE__SKETCH__KEY": key, "RAYON_NUM_THREADS": "1"}


def run(command, **options):
    """Runs to success and returns what was printed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        told = done.stdout[:2_000] + done.stderr[-2_000:]
        raise SystemExit(f"{' '.join(map(str, command))}\n{told}\nfailed: {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Sieve:
    """pagesieve at one width."""

    width: int
    num_seeds = NUM_SEEDS

    @property
    def name(self):
        return f"pagesieve, {self.width} bytes" + (" (default)" if self.width == DEFAULT_WIDTH else "")

    def speed(self, path, results):
        """One thread, plain files, the whole process; its size above that of a run on a few pages."""
        outcome = self._run(path, results)
        few = results / "few.jsonl"
        with open(path, "rb") as lines, open(few, "wb") as out:
            out.writelines(line for line, _ in zip(lines, range(FEW_PAGES)))
        outcome["resident_bytes"] = outcome["peak"] - self._run(few, results)["peak"]
        outcome["banding"] = "its own"
        return outcome

    def _run(self, path, results):
        report = results / "report.json"
        command = [SIEVE, "filter", "-q", "--threads", "1", path, "-o", results / "survivors", "--report", report]
        _, whole = pinned(command, environment(width=self.width))
        told = json.loads(report.read_text())
        if told["rejected"] or told["skipped"]:
            raise SystemExit(f"{self.name} did not judge all pages of {path}: {told}")
        index = told["index"]
        return whole | {
            "pages": told["pages"],
            "survivors": index["pages"],
            "seconds": whole["whole_seconds"],
            "table_bytes": index["bytes_per_page"],
        }

    def decide(self, corpus, seed, results):
        """Filters a corpus into `survivors` and `duplicates`."""
        command = [SIEVE, "filter", "-q", "--threads", "1", corpus.path, "-o", results / "survivors"]
        run([*command, "--duplicates", results / "duplicates"], env=environment(seed, self.width))


@dataclass(frozen=True)
class Peer:
    """A library in its harness."""

    name: str
    program: tuple
    num_seeds: int = NUM_SEEDS

    def speed(self, path, _results):
        told, whole = pinned([*self.program, path, 1], environment())
        outcome = json.loads(told)
        timed = outcome["shingling_seconds"] + outcome["indexing_seconds"]
        return outcome | whole | {"seconds": timed}

    def decide(self, corpus, seed, results):
        """Judges a corpus, and writes what was decided as `filter` would."""
        told = json.loads(run([*self.program, corpus.path, seed, results / "decisions"], env=environment()))
        decisions = (results / "decisions").read_text().splitlines()
        if not told["pages"] == len(decisions) == len(corpus.lines):
            raise SystemExit(f"{self.name} judged {told['pages']} of {len(corpus.lines)} pages of {corpus.path}")
        with open(results / "survivors", "wb") as survivors, open(results / "duplicates", "w") as duplicates:
            for number, decision in enumerate(decisions):
                if decision == "-":
                    survivors.write(corpus.lines[number])
                    continue
                canonical, estimate = decision.split()
                same = corpus.same[number] == corpus.same[int(canonical)]
                line = {
                    "position": f"{corpus.path}:{number + 1}",
                    "verdict": "exact_duplicate" if same else "near_duplicate",
                    "canonical": {"position": f"{corpus.path}:{int(canonical) + 1}"},
                    "resemblance": float(estimate),
                }
                duplicates.write(json.dumps(line) + "\n")


class Corpus:
    """Pages that accuracy is measured on."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        self.lines = path.read_bytes().splitlines(keepends=True)
        # What pages must share to be called the same: their words, or of short ones the text but for white space.
        self.same = []
        words_of = re.compile(r"[^\W_]+").findall
        for line in self.lines:
            text = json.loads(line)["text"]
            words = words_of(text.lower())
            shingles = zip(*(words[at:] for at in range(corpora.SHINGLE_WORDS)))
            short = len(words) < 1_000 and len(set(shingles)) < MIN_SHINGLES
            self.same.append(hash(tuple(text.split() if short else words)))


class Watcher(threading.Thread):
    """Sees the peak of a process until a few milliseconds before its end.

    What the system tells after the end would be no less than the peak of this process, which started it.
    """

    INTERVAL_SECONDS = 0.005

    def __init__(self, pid):
        super().__init__()
        self.status, self.peak = Path(f"/proc/{pid}/status"), 0

    def run(self):
        while True:
            try:
                status = self.status.read_text()
            except OSError:
                return
            peak = re.search(r"VmHWM:\s*(\d+) kB", status)
            if peak is None:
                return
            self.peak = int(peak[1]) * 1024
            time.sleep(self.INTERVAL_SECONDS)


def pinned(command, env):
    """Runs on one core: what was printed; and seconds, the most memory resident, how much of the core it had."""
    printed = WORK / "printed"
    with open(printed, "wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(["taskset", "-c", CORE, *map(str, command)], stdout=out, env=env)
        watcher = Watcher(process.pid)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        code = process.returncode = os.waitstatus_to_exitcode(status)
        watcher.join()
    if code != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed: {code}")
    if watcher.peak == 0:
        raise SystemExit(f"{command[0]} ended before its size was seen")
    whole = {
        "whole_seconds": seconds,
        "peak": watcher.peak,
        "share_of_core": (usage.ru_utime + usage.ru_stime) / seconds,
    }
    return printed.read_text(), whole


def measure_speed(tools, path):
    """Tool → its fastest run; the runs in turn."""
    results = WORK / "speed"
    results.mkdir(parents=True)
    best = {}
    for turn in range(RUNS):
        for tool in tools:
            if turn >= SLOW_RUNS and best[tool.name]["whole_seconds"] > SLOW_SECONDS:
                continue
            outcome = tool.speed(path, results)
            if turn == 0:
                say(f"speed: {tool.name}, {outcome['whole_seconds']:.1f} s")
            known = best.setdefault(tool.name, outcome)
            if outcome["pages"] != known["pages"] or outcome["survivors"] != known["survivors"]:
                raise SystemExit(f"{tool.name} decides otherwise on another run")
            best[tool.name] = min(known, outcome, key=lambda each: each["seconds"])
    shutil.rmtree(results)
    if len({outcome["pages"] for outcome in best.values()}) != 1:
        raise SystemExit(f"not all tools judged all pages: {best}")
    return best


def measure_accuracy(tool, corpus, seed):
    """One run of a tool, scored by `evaluate`: every tool by the same code, which makes no sketches."""
    results = WORK / f"{corpus.path.stem}-{re.sub('[^a-z0-9]+', '-', tool.name)}-{seed}"
    results.mkdir()
    tool.decide(corpus, seed, results)
    report = results / "evaluation.json"
    command = [SIEVE, "evaluate", "--pages", corpus.path, "--survivors", results / "survivors", "--window", "none"]
    run([*command, "--duplicates", results / "duplicates", "--report", report], env=environment())
    told = json.loads(report.read_text())
    if told["contract"]["pages"] != len(corpus.lines) or told["threshold"] != 0.8:
        raise SystemExit(f"{report} is not of this run")
    shutil.rmtree(results)
    return told["overall"]


def grouped(number):
    return f"{number:,.0f}"


def print_speed(tools, best, num_bytes):
    own = best[Sieve(DEFAULT_WIDTH).name]
    num_pages = own["pages"]
    print(f"\nSpeed: {num_pages:,} generated pages of {num_bytes / num_pages:,.0f} bytes, one thread on one core\n")
    columns = "shingles µs,index µs,pages/s,pagesieve is,whole run/s,bytes/page,in tables,banding".split(",")
    print(f"{'':<30}" + "".join(f"{name:>13}" for name in columns))
    for tool in tools:
        it = best[tool.name]
        parts = ("shingling_seconds", "indexing_seconds")
        micros = [f"{it[part] / it['pages'] * 1e6:.1f}" if part in it else "·" for part in parts]
        cells = [
            *micros,
            grouped(it["pages"] / it["seconds"]),
            f"{it['seconds'] / own['seconds']:.2f} ×",
            grouped(it["pages"] / it["whole_seconds"]),
            grouped(it["resident_bytes"] / it["survivors"]),
            grouped(it["table_bytes"]) if "table_bytes" in it else "·",
            it["banding"],
        ]
        print(f"{tool.name:<30}" + "".join(f"{cell:>13}" for cell in cells))
    print(
        "\npages/s: of pagesieve the whole process, reading, JSON and writing included; of the peers words, shingles,\n"
        "signature, query and insert only. pagesieve is: at its default width so many times as fast. whole run/s: the\n"
        "peers' processes too, which write nothing. bytes/page: resident growth by survivor. in tables: as reported."
    )
    disturbed = [f"{name} ({it['share_of_core']:.0%})" for name, it in best.items() if it["share_of_core"] < QUIET]
    if disturbed:
        print(f"\nTOO SLOW, since the machine is busy; they had this much of the core:\n  {', '.join(disturbed)}")


def print_accuracy(tools, corpus, measured):
    runs = f"{NUM_SEEDS} keys or seeds, of datasketch {DATASKETCH_SEEDS}"
    print(f"\nAccuracy: {len(corpus.lines):,} {corpus.name}, {runs}\n")
    parts = {
        "recall_080": "recall ≥ 0.8",
        "near_precision_threshold": "precision ≥ 0.8",
        "recall_085": "recall ≥ 0.85",
        "near_precision_075": "precision ≥ 0.75",
    }
    print(f"{'':<30}" + "".join(f"{title:>22}" for title in parts.values()) + f"{'pages':>10}{'drops':>10}")
    print(f"{'':<30}" + f"{'mean':>12}{'worst':>10}" * len(parts) + f"{'≥ 0.8':>10}{'near':>10}")
    for tool in tools:
        cells = []
        for part in parts:
            shares = [overall[part] for overall in measured[tool.name]]
            if not all(share["whole"] for share in shares):
                raise SystemExit(f"{corpus.name}, {tool.name}: nothing to take {part} of; more pages are needed")
            values = [share["part"] / share["whole"] * 100 for share in shares]
            cells.append(f"{statistics.fmean(values):>10.2f} %{min(values):>8.2f} %")
        for part in ("recall_080", "near_precision_threshold"):
            cells.append(f"{statistics.fmean(overall[part]['whole'] for overall in measured[tool.name]):>10,.0f}")
        print(f"{tool.name:<30}" + "".join(cells))


def main():
    sys.stdout.reconfigure(line_buffering=True)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    python = (CACHE / "venv/bin/python", Path(__file__).with_name("python_peers.py"))
    peers = [
        Peer("gaoya, its own hasher", (CACHE / "gaoya/release/peer-gaoya", "fnv")),
        Peer("gaoya, aHash", (CACHE / "gaoya/release/peer-gaoya", "ahash")),
        Peer("rensa", (*python, "rensa", 16, 8)),
        Peer("datasketch, its own banding", (*python, "datasketch", 0, 0), DATASKETCH_SEEDS),
        Peer("datasketch, 16 × 8", (*python, "datasketch", 16, 8), DATASKETCH_SEEDS),
    ]
    tools = [*map(Sieve, WIDTHS), *peers]
    # It finds what the same with a faster hash finds.
    timed = [*tools, Peer("datasketch, its own hash too", (*python, "datasketch-sha1", 0, 0))]

    path = WORK / "generated.jsonl"
    run([SIEVE, "generate", NUM_PAGES, "--revisits", 0, "--late", 0, "--skipped", 0, "--bad", 0, "-o", path])
    best = measure_speed(timed, path)
    print_speed(timed, best, path.stat().st_size)
    path.unlink()

    made = [("edited pages", "edited", corpora.edited, round(NUM_PAGES * EDITED_SHARE))]
    made.append(("pages of the Rust documentation", "documentation", corpora.documentation, NUM_PAGES))
    for name, stem, make, num_pages in made:
        path = WORK / f"{stem}.jsonl"
        say(f"making {name}")
        if make(path, num_pages) == 0:
            print(f"\nAccuracy: no {name}: `rustup component add rust-docs` installs them")
            continue
        corpus = Corpus(name, path)
        jobs = [(tool, seed) for tool in reversed(tools) for seed in range(1, tool.num_seeds + 1)]
        measured = {tool.name: [] for tool in tools}
        pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        try:
            outcomes = [pool.submit(measure_accuracy, tool, corpus, seed) for tool, seed in jobs]
            for (tool, seed), outcome in zip(jobs, outcomes):
                measured[tool.name].append(outcome.result())
                if seed == tool.num_seeds:
                    say(f"{name}: {tool.name}")
        finally:
            pool.shutdown(cancel_futures=True)
        print_accuracy(tools, corpus, measured)
        path.unlink()
    say("done")


if __name__ == "__main__":
    main()
