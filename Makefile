# What a person types; `make` alone says what there is.

CARGO ?= cargo
PAGES ?= 20000
MINUTES ?= 30
DEMO := target/demo
LOCAL := .cache/kafka-local
SIEVE := target/release/pagesieve
PEERS := .cache/peers

.PHONY: help demo test test-faults soak lint bench bench-peers build kafka-up kafka-down packages-build packages-test

help:
	@echo 'make demo        build, make a sample crawl of $(PAGES) pages, filter it, and say how good that was'
	@echo 'make test        every test, with a broker of its own'
	@echo 'make test-faults the fault matrix: every row, in both guarantees, with the table of what the oracle counted'
	@echo 'make soak        half of what it can take for MINUTES=$(MINUTES), with a fault every 30 s'
	@echo 'make lint        formatting and lints'
	@echo 'make bench       speed beside wc -w on the same file, of each stage, and instructions beside those kept'
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

# A quarter of an hour or so. FAULTS=disk,clock runs the rows with one of these in their names.
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

bench: build
	benches/beside-wc.sh $(SIEVE)
	$(CARGO) bench --locked --bench stages
	$(CARGO) bench --locked --bench index -- --full
	$(CARGO) bench --locked --bench remember
	benches/instructions.sh

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
