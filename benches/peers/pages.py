"""The pages that accuracy is measured on, as JSON lines with id, url and text; the same on every machine.

edited pages          made up, each with copies edited by a little to a lot: resemblance spread over 0.5 to 1
documentation pages   the HTML that the component rust-docs installs, tags stripped: templates, little of their own
"""

import html
import json
import random
import re
import subprocess
from itertools import accumulate
from pathlib import Path

SHINGLE_WORDS = 5

# Shingles that one edit takes from a page: those over the word, or over the two or three new joints.
COST = {"substitute": SHINGLE_WORDS, "insert": SHINGLE_WORDS, "delete": SHINGLE_WORDS, "move": 3 * (SHINGLE_WORDS - 1)}
EDITS = ("substitute", "substitute", "insert", "delete", "move")


def write(path, pages):
    """Writes (id, text) pairs; returns how many."""
    num_pages = 0
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        for name, text in pages:
            page = {"id": name, "url": f"https://pages.example/{name}", "text": text}
            out.write(json.dumps(page, ensure_ascii=False) + "\n")
            num_pages += 1
    return num_pages


class Writer:
    """Words drawn by Zipf's law from a vocabulary made of syllables."""

    def __init__(self, rng, num_words=30_000):
        syllables = [c + v for c in "b d f g k l m n p r s t v z ch sh st tr".split() for v in "a e i o u ea".split()]
        words = set()
        while len(words) < num_words:
            stem = "".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4))))
            words.add(stem + rng.choice(("", "", "n", "s", "r")))
        self.rng = rng
        self.words = sorted(words, key=lambda word: (len(word), word))
        self.weights = list(accumulate(1 / (rank + 2.7) for rank in range(num_words)))

    def draw(self, number):
        return self.rng.choices(self.words, cum_weights=self.weights, k=number)

    def text(self, words):
        """Words as sentences and paragraphs."""
        out, left = [], 0
        for word in words:
            if left == 0:
                word, left = word.capitalize(), self.rng.randint(6, 24)
            left -= 1
            out.append(word + self.rng.choice((". ", ".\n")) if left == 0 else word + " ")
        return "".join(out).strip()


def edited_copy(words, writer, resemblance):
    """A copy with as many edits as bring it about to this resemblance: of n shingles 2 d / (n + d) differ."""
    rng, copy = writer.rng, list(words)
    budget = len(words) * (1 - resemblance) / (1 + resemblance)
    while True:
        edit = rng.choice(EDITS)
        if budget < COST[edit] * rng.random():
            return copy
        budget -= COST[edit]
        at = rng.randrange(len(copy))
        if edit == "substitute":
            copy[at : at + 1] = writer.draw(1)
        elif edit == "insert":
            copy[at:at] = writer.draw(1)
        elif edit == "delete":
            del copy[at]
        else:
            block = copy[at : at + rng.randint(2, 30)]
            del copy[at : at + len(block)]
            to = rng.randint(0, len(copy))
            copy[to:to] = block


def edited(path, num_pages):
    """About three pages in four are copies, of a base page each, in no order."""
    rng = random.Random(20_26)
    writer = Writer(rng)
    pages, family = [], 0
    while len(pages) < num_pages:
        base = writer.draw(round(20 * 50 ** rng.random()))
        pages.append((f"{family}-0", base))
        for copy in range(1, rng.randint(1, 5) + 1):
            pages.append((f"{family}-{copy}", edited_copy(base, writer, rng.uniform(0.5, 1.0))))
        family += 1
    del pages[num_pages:]
    rng.shuffle(pages)
    return write(path, ((name, writer.text(words)) for name, words in pages))


# Left out with what is in it; ends a line; any other tag leaves nothing behind.
UNSEEN = re.compile(r"(?is)<(head|script|style|noscript|template|svg)\b.*?</\1\s*>|<!--.*?-->")
BLOCK = re.compile(
    r"(?i)</?(?:p|div|section|article|main|nav|aside|header|footer|details|summary|ul|ol|li|dl|dt|dd|table|tr|td|th|pre"
    r"|blockquote|h[1-6]|br|hr)\b[^>]*>"
)
TAG = re.compile(r"(?s)<[^>]*>")
TITLE = re.compile(r"(?is)<title\b[^>]*>(.*?)</title>")
REDIRECT = re.compile(r"(?i)http-equiv=\"?refresh")


def text_of(source):
    """The text of an HTML page, its title first."""
    title = TITLE.search(source)
    body = TAG.sub("", BLOCK.sub("\n", UNSEEN.sub(" ", source)))
    text = html.unescape((title.group(1) + "\n" if title else "") + body)
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def documentation(path, num_pages):
    """At most so many pages of the toolchain's own documentation; 0 if it is not installed.

    Of too many, stretches of neighbours in the order of their names are taken all over it. Pages that only lead on to
    another are left out.
    """
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    root = Path(sysroot, "share/doc/rust/html")
    files = sorted(root.rglob("*.html"), key=lambda file: file.relative_to(root).parts)
    stretch = 50
    step = -(-len(files) // num_pages)

    def pages():
        for number, file in enumerate(files):
            if number // stretch % step:
                continue
            source = file.read_text(encoding="utf-8", errors="replace")
            if not REDIRECT.search(source, 0, 2_000):
                yield file.relative_to(root).as_posix(), text_of(source)

    return write(path, pages()) if files else 0
