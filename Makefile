# What a person types; `make` alone says what there is.

CARGO ?= cargo
PAGES ?= 20000
SEEDS ?= 10000
SECONDS ?= 60
MINUTES ?= 30
DEMO := target/demo
LOCAL := .cache/kafka-local
SIEVE := target/release/pagesieve
PEERS := .cache/peers

.PHONY: help demo test simulate test-faults soak lint fuzz bench bench-kafka bench-peers build kafka-up kafka-down \
  packages-build packages-test

help:
	@echo 'make demo        build, make a sample crawl of $(PAGES) pages, filter it, and say how good that was'
	@echo 'make test        every test, with a broker of its own, and a minute of bad input'
	@echo 'make simulate    $(SEEDS) simulated runs full of faults, and what they did not break'
	@echo 'make test-faults the fault matrix: every row, in both guarantees, with the table of what the oracle counted'
	@echo 'make soak        half of what it can take for MINUTES=$(MINUTES), with a fault every 30 s'
	@echo 'make lint        formatting and lints'
	@echo 'make fuzz        new bad input, $(SECONDS) seconds for each target; TARGETS="page config" for some'
	@echo 'make bench       speed beside wc -w on the same file, of each stage, and instructions beside those kept'
	@echo 'make bench-kafka speed on a broker beside a plain loop, price of exactly once, latency'
	@echo 'make bench-peers speed, memory, recall and precision beside gaoya, rensa and datasketch'
	@echo 'make kafka-up    a broker on loopback to try things with; make kafka-down stops it'

packages-build:
	@tests/kafka/setup.sh build

packages-test:
	@tests/kafka/setup.sh test

build: packages-build
	$(CARGO) build --release --locked

demo: build
	@mkdir -p $(DEMO)
	@echo; echo '== a sample crawl, with what is known of each page in a side file'
	$(SIEVE) generate $(PAGES) -o $(DEMO)/pages.jsonl --truth $(DEMO)/truth.jsonl
	@test -f $(DEMO)/key || $(SIEVE) keygen -o $(DEMO)/key
	@echo; echo '== filtered'
	$(SIEVE) filter $(DEMO)/pages.jsonl -o $(DEMO)/survivors.jsonl --duplicates $(DEMO)/duplicates.jsonl \
	  --rejected $(DEMO)/rejected.jsonl --report $(DEMO)/report.json --key-file $(DEMO)/key
	@echo; echo '== how good that was'
	$(SIEVE) evaluate --pages $(DEMO)/pages.jsonl --survivors $(DEMO)/survivors.jsonl \
	  --duplicates $(DEMO)/duplicates.jsonl --rejected $(DEMO)/rejected.jsonl --truth $(DEMO)/truth.jsonl
	@echo; echo 'the files are in $(DEMO)'

# The brokers of the tests end with the test processes, however those end.
test: packages-test
	tests/kafka/broker.sh fetch
	$(CARGO) test --locked
	fuzz/run.sh check

fuzz: packages-build
	fuzz/run.sh for $(SECONDS) $(TARGETS)

# Every run is its seed: a failing one is printed with the command that repeats it.
simulate: packages-build
	SEEDS=$(SEEDS) $(CARGO) test --locked --test simulate -- --nocapture --test-threads 1

# Half an hour or so. FAULTS=disk,clock runs the rows with one of these in their names.
test-faults: packages-test
	tests/kafka/broker.sh fetch
	PAGESIEVE_FAULTS='$(FAULTS)' $(CARGO) test --locked --features crash-points --test kafka -- \
	  --ignored --nocapture --exact faults::matrix

soak: packages-test
	tests/kafka/broker.sh fetch
	MINUTES=$(MINUTES) $(CARGO) test --release --locked --test kafka -- --ignored --nocapture --exact soak::soak

lint: packages-build
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --features crash-points -- -D warnings
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target --locked -- -D warnings

bench: build
	benches/beside-wc.sh $(SIEVE)
	$(CARGO) bench --locked --bench stages
	$(CARGO) bench --locked --bench index -- --full
	$(CARGO) bench --locked --bench remember
	benches/instructions.sh

bench-kafka: build packages-test
	tests/kafka/broker.sh fetch
	$(CARGO) bench --locked --bench kafka

# PEERS_PAGES=5000 tries it out in a minute or two.
bench-peers: build
	benches/peers/setup.sh $(CURDIR)/$(PEERS)
	$(PEERS)/venv/bin/python -B benches/peers/compare.py $(SIEVE) $(PEERS)

kafka-up: packages-test
	@tests/kafka/broker.sh start $(LOCAL)
	@tests/kafka/broker.sh topic $(LOCAL) pages 4
	@echo "stop it with: make kafka-down"

kafka-down:
	@tests/kafka/broker.sh stop $(LOCAL)
	@rm -rf $(LOCAL)
