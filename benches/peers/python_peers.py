"""The job of `pagesieve filter` done with rensa or datasketch: drop what resembles a known page, remember the rest.

    python_peers.py rensa|datasketch|datasketch-sha1 BANDS ROWS PAGES SEED [DECISIONS]

    text ─▶ words ─▶ shingles ─▶ signature ─▶ query ▸ verify ─▶ drop or insert

DECISIONS gets a line for each page: `-` if it survived, else the number of the page it was dropped for (from 0) and the
estimated resemblance. Standard output gets one JSON object with the time and the memory that it took.

Reading the file and its JSON is not timed. ROWS = 0 leaves the banding to datasketch.
"""

import json
import re
import sys
from time import perf_counter

THRESHOLD = 0.8
NUM_PERM = 128

# Pages with fewer words have fewer than 8 shingles and are compared by their exact text, as pagesieve does.
MIN_WORDS = 12

words_of = re.compile(r"[^\W_]+").findall


class Rensa:
    """Its own streaming deduplicator, which verifies candidates and keeps all signatures outside Python."""

    def __init__(self, bands, rows, seed, names_canonical):
        from rensa import RMinHash, RMinHashDeduplicator

        if bands * rows != NUM_PERM:
            raise SystemExit(f"rensa uses all {NUM_PERM} slots: {bands} bands of {rows} do not")
        self.banding = f"{bands} × {rows}"
        self.sketch, self.seed = RMinHash, seed
        self.index = RMinHashDeduplicator(THRESHOLD, NUM_PERM, use_lsh=True, num_bands=bands, seed=seed)
        # `add` tells only whether; who and how much costs a second query and a copy of every signature, and is not
        # asked for where time or memory is measured.
        self.signatures = {} if names_canonical else None

    def judge(self, number, shingles):
        signature = self.sketch(NUM_PERM, self.seed)
        signature.update(shingles)
        if self.signatures is None:
            return None if self.index.add(str(number), signature) else (0, 0.0)
        similar = [(signature.jaccard(self.signatures[key]), -int(key)) for key in self.index.get_duplicates(signature)]
        if self.index.add(str(number), signature) == bool(similar):
            raise SystemExit(f"rensa: add and get_duplicates disagree on page {number}")
        if not similar:
            self.signatures[str(number)] = signature
            return None
        estimate, other = max(similar)
        return -other, estimate


class Datasketch:
    """MinHashLSH, which does not verify, with lean signatures kept beside it as its documentation recommends.

    The permutations are made once and not for each page, and shingles are hashed by xxHash, several times as fast as
    the SHA-1 that is the default.
    """

    def __init__(self, bands, rows, seed, _names_canonical):
        from datasketch import LeanMinHash, MinHash, MinHashLSH
        from xxhash import xxh32_intdigest

        params = (bands, rows) if rows else None
        self.index = MinHashLSH(threshold=THRESHOLD, num_perm=NUM_PERM, params=params)
        self.banding = f"{self.index.b} × {self.index.r}"
        self.empty = MinHash(num_perm=NUM_PERM, seed=seed, hashfunc=xxh32_intdigest)
        self.lean, self.signatures = LeanMinHash, {}

    def judge(self, number, shingles):
        sketch = self.empty.copy()
        sketch.update_batch(map(str.encode, shingles))
        signature = self.lean(sketch)
        similar = [(signature.jaccard(self.signatures[key]), -key) for key in self.index.query(signature)]
        estimate, other = max(similar, default=(0.0, 0))
        if estimate >= THRESHOLD:
            return -other, estimate
        self.index.insert(number, signature)
        self.signatures[number] = signature
        return None


class DatasketchSha1(Datasketch):
    """The same with its default hash."""

    def __init__(self, bands, rows, seed, names_canonical):
        from datasketch import MinHash

        super().__init__(bands, rows, seed, names_canonical)
        self.empty = MinHash(num_perm=NUM_PERM, seed=seed)


def resident():
    """Resident bytes of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise SystemExit("no VmRSS in /proc/self/status")


def main():
    library, bands, rows, pages, seed, *rest = sys.argv[1:]
    decisions = open(rest[0], "w", encoding="ascii") if rest else None
    libraries = {"rensa": Rensa, "datasketch": Datasketch, "datasketch-sha1": DatasketchSha1}
    make = libraries[library]
    peer = make(int(bands), int(rows), int(seed), decisions is not None)
    short = {}
    num_pages = num_survivors = 0
    shingling = indexing = 0.0
    before = resident()
    with open(pages, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines):
            text = json.loads(line)["text"]
            start = perf_counter()
            words = words_of(text.lower())
            shingles = list(map(" ".join, zip(words, words[1:], words[2:], words[3:], words[4:])))
            split = perf_counter()
            if len(words) < MIN_WORDS:
                first = short.setdefault(" ".join(text.split()), number)
                canonical = None if first == number else (first, 1.0)
            else:
                canonical = peer.judge(number, shingles)
            end = perf_counter()
            shingling += split - start
            indexing += end - split
            num_pages += 1
            num_survivors += canonical is None
            if decisions:
                decisions.write("-\n" if canonical is None else f"{canonical[0]} {canonical[1]:.6f}\n")
    if decisions:
        decisions.close()
    json.dump(
        {
            "pages": num_pages,
            "survivors": num_survivors,
            "shingling_seconds": shingling,
            "indexing_seconds": indexing,
            "resident_bytes": max(0, resident() - before),
            "banding": peer.banding,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
