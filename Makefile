# Two commands: `make quick` measures, `make test` proves. Both set up what they need, once.

VENV    := .venv
WSBENCH := $(VENV)/bin/wsbench
ENGINE  := $(VENV)/bin/wsbench-engine
CARGO   := cargo --quiet
# One server of each language, and what was changed last: building the whole catalogue takes long (`make check-all`).
CHECKED := reference@* netty netty@4.1.19 tcp-java ktor pekko-http go-net-websocket node-nodejs-websocket@* python-websockets \
           c-libwebsockets uwebsockets

.PHONY: quick test setup setup-test check-python check-engine fuzz check-servers check-all check-builds bench-engine clean

quick: setup
	$(WSBENCH) run quick

test: setup-test check-python check-engine check-servers
	@echo "every check passed"

setup: $(VENV)/.done $(ENGINE)

$(VENV)/.done: pyproject.toml constraints.txt scripts/setup.sh
	scripts/setup.sh tools
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(ENGINE): $(VENV)/.done engine/Cargo.toml engine/Cargo.lock $(wildcard engine/src/*.rs)
	$(CARGO) build --release --locked --manifest-path engine/Cargo.toml
	install engine/target/release/wsbench-engine $@

setup-test: setup
	scripts/setup.sh test
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[test]'

check-python: setup-test
	$(VENV)/bin/ruff check wsbench tests engine/benches
	$(VENV)/bin/ruff format --check --quiet wsbench tests engine/benches
	$(VENV)/bin/pytest

check-engine: setup
	$(CARGO) fmt --check --manifest-path engine/Cargo.toml
	$(CARGO) clippy --release --locked --all-targets --manifest-path engine/Cargo.toml -- -D warnings
	$(CARGO) test --release --locked --manifest-path engine/Cargo.toml
	scripts/fuzz.sh 10

# Coverage-guided, from the corpus: a minute for each of what takes a server's bytes apart.
fuzz: setup
	scripts/fuzz.sh 60

# BENCH_OPTIONS="--quick", "--only echo-50", "--engine OLD --engine NEW": `engine/benches/compare.py --help` lists them.
bench-engine: setup-test
	$(VENV)/bin/python engine/benches/compare.py $(BENCH_OPTIONS)

check-servers: setup
	scripts/setup.sh catalogue
	$(WSBENCH) check $(CHECKED) $$(scripts/changed_servers.sh)

# Every server: installs what the catalogue needs, builds it and holds it against the contract.
check-all: setup
	scripts/setup.sh catalogue
	$(WSBENCH) check

# Each server is built twice, in folders of different names, and the files compared.
check-builds: setup
	scripts/setup.sh catalogue
	$(VENV)/bin/python scripts/same_artefacts.py

clean:
	rm -rf $(VENV) engine/target servers/*/build servers/*/target
