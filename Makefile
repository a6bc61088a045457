# `make quick` measures. `make check`, `make test` and `make test-all` prove. All set up what they need, once.

VENV    := .venv
BIN     := $(VENV)/bin
WSBENCH := $(BIN)/wsbench
# What builds a wheel needs none of what the tool needs.
WHEEL   := build/wheel-tools
ENGINE  := $(BIN)/wsbench-engine
# The oldest Rust that builds the engine.
RUST    := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' engine/Cargo.toml)
# Tools of the system: wsbench/host/toolchains.toml.
TOOLS   := python3 -m wsbench.host.toolchains
# A PATH on which they are found, also where the user's own leads elsewhere.
FOUND    = PATH="$(CURDIR)/$(BIN):$$($(TOOLS) path rust=$(RUST))"
CARGO    = $(FOUND) cargo --quiet
# Nothing where there is no sudo: what needs root is then skipped with that reason.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || ! command -v sudo >/dev/null || echo 'sudo env "PATH=$$PATH:/usr/sbin:/sbin" "HOME=$$HOME"')
# One server of each language, and what was changed last: building the whole catalogue takes long (`make check-all`).
CHECKED := reference@* netty netty@4.1.19 tcp-java ktor pekko-http go-net-websocket node-nodejs-websocket@* python-websockets \
           c-libwebsockets uwebsockets mosquitto aedes json-rpc
# One of each language that most servers are written in.
FOUR    := reference@* netty go-net-websocket node-ws
# Two workers; a file of tests stays with one.
WORKERS := --numprocesses=2 --dist=loadfile --no-loadscope-reorder
# Tests that start servers mostly wait: whichever worker is free runs the next one; those that share a fixture of their file stay together (tests/kinds.py).
WAITING := --numprocesses=6 --dist=loadgroup --no-loadscope-reorder
# The same of the engine's tests.
export RUST_TEST_THREADS ?= 6
# Compiled Python is kept, also where the environment asks for the opposite: each worker and each command would compile all of it.
unexport PYTHONDONTWRITEBYTECODE
# What the harness's own tests start.
TESTED  := reference@* netty go-net-websocket node-ws json-rpc aedes

REPORTS := $(patsubst %/campaign.json,%/report.html,$(wildcard results/*/campaign.json))

.PHONY: quick check test test-all lint test-system test-root test-engine compiled-engine test-servers test-wheel coverage mutants docs site faults simulate \
        setup setup-test fuzz check-all check-builds check-fresh wheel wheels bench-engine clean

quick: setup
	$(WSBENCH) run quick --install

# Before a commit: lint, and what needs no server. Two workers.
check: setup-test lint
	$(BIN)/pytest -m "not system" --durations=10 $(WORKERS)

# Before a push, and what CI runs: also real servers, a browser, a cluster, the engine's tests and the wheel. Tests of servers mostly
# wait, so what the last step needs is compiled meanwhile.
test: check
	$(WSBENCH) build --install $(TESTED)
	$(MAKE) --jobs=3 test-system test-root compiled-engine
	$(MAKE) --jobs=3 test-engine test-servers test-wheel
	@echo "every check passed"

# Every night: everything, simulations at full size. `make test` runs first.
test-all: test
	$(WSBENCH) check --install $(CHECKED) $$(scripts/changed_servers.sh)
	$(BIN)/pytest --all -m "not root and not alone" --durations=30 $(WORKERS)
	$(BIN)/pytest --all -m "alone and not root"
	$(AS_ROOT) $(BIN)/python -B -m pytest --all -m root --durations=10 -p no:cacheprovider
	$(FOUND) scripts/fuzz.sh 60
	$(MAKE) simulate
	$(MAKE) check-fresh
	@echo "every check passed"

# The documentation site, in build/site.
docs: $(VENV)/.done-docs
	$(BIN)/python scripts/docs.py

# The published campaigns as pages, in build/campaigns: what to choose for which load, the claims, every campaign and its history.
site: $(VENV)/.done
	$(MAKE) --jobs=2 $(REPORTS)
	rm -rf build/campaigns
	$(WSBENCH) site build/campaigns results

# A published campaign has no report, only what it is drawn from.
results/%/report.html: | results/%/outcomes.parquet $(VENV)/.done
	$(WSBENCH) report results/$*

# Without a lock file (`scripts/lock.sh` writes it) pyproject.toml alone pins Zensical.
$(VENV)/.done-docs: $(VENV)/.done $(wildcard requirements/docs.txt)
	$(BIN)/pip install --quiet $(if $(wildcard requirements/docs.txt),--require-hashes --requirement requirements/docs.txt,--no-build-isolation --editable '.[docs]')
	touch $@

# Everything that is done to wsbench to harm it, and what becomes of that: a table.
faults: setup-test
	$(FOUND) $(BIN)/pytest --all -m "fault and not root"
	$(AS_ROOT) $(BIN)/python -B -m pytest --all -m "fault and root" -p no:cacheprovider

# Which lines and branches of the judging packages the unit tests reach.
coverage: setup-test
	$(BIN)/python scripts/tested.py --number 0

# MUTANTS="--number 200" for more than 20.
mutants: setup-test
	$(BIN)/python scripts/tested.py $(MUTANTS)

# The tool and the engine: a C linker, Rust and Python, no more.
setup: $(VENV)/.done $(ENGINE)

$(VENV)/.done: pyproject.toml requirements/tool.txt
	@python3 -c 'import sys; sys.version_info < (3, 11) and sys.exit("wsbench needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(TOOLS) install venv c rust=$(RUST)
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/tool.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(ENGINE): $(VENV)/.done engine/Cargo.toml engine/Cargo.lock $(wildcard engine/src/*.rs engine/src/*/*.rs)
	$(CARGO) build --release --locked --manifest-path engine/Cargo.toml
	install engine/target/release/wsbench-engine $@

setup-test: $(VENV)/.done-test $(ENGINE)

$(VENV)/.done-test: $(VENV)/.done requirements/test.txt wsbench/host/toolchains.toml
	$(TOOLS) install cpp chromium ab ssh dropbear ip debootstrap rust-checks=$(RUST)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/test.txt
	touch $@

lint: setup-test
	$(BIN)/ruff check wsbench tests engine/benches scripts studies hatch_build.py
	$(BIN)/ruff format --check --quiet wsbench tests engine/benches scripts studies hatch_build.py
	$(BIN)/lint-imports
	$(FOUND) $(BIN)/python scripts/notices.py --check

# One end-to-end case of each command, every experiment at its smallest scale, a browser: on real servers.
test-system: setup-test
	$(BIN)/pytest -m "system and not root" --durations=20 $(WAITING)

# Clusters of hosts that are network namespaces: needs root, and is skipped with the reason elsewhere.
test-root: setup-test
	$(AS_ROOT) $(BIN)/python -B -m pytest -m root --durations=10 -p no:cacheprovider

test-engine: compiled-engine
	$(CARGO) test --profile checked --locked --manifest-path engine/Cargo.toml

# The engine's lint, and its tests, not run: compiled with what others leave of the CPUs.
compiled-engine: setup-test
	$(CARGO) fmt --check --manifest-path engine/Cargo.toml
	$(FOUND) nice -n 19 cargo --quiet clippy --profile checked --locked --lib --bins --tests --bench floor --manifest-path engine/Cargo.toml -- -D warnings
	$(FOUND) nice -n 19 cargo --quiet test --no-run --profile checked --locked --manifest-path engine/Cargo.toml

# Coverage-guided, from the corpus: a minute for each of what takes a server's bytes apart. Then the harness's readers of foreign
# files, each with so many alterations as nobody has seen.
fuzz: setup-test
	$(FOUND) scripts/fuzz.sh 60
	WSBENCH_EXAMPLES=2000 $(BIN)/pytest tests/faults/test_fault_fuzzed*.py

# The engine's worker on a made-up machine, a seed a run: SEEDS=1000000 FIRST_SEED=5000 for longer and for others, SEED=77 for one.
SEEDS ?= 20000
simulate: setup-test
	SEEDS=$(SEEDS) CARGO_PROFILE_CHECKED_OPT_LEVEL=3 $(CARGO) test --profile checked --locked --manifest-path engine/Cargo.toml --lib -- simulation --nocapture

# BENCH_OPTIONS="--quick", "--only echo-50", "--engine OLD --engine NEW": `engine/benches/compare.py --help` lists them.
bench-engine: setup-test
	$(FOUND) $(BIN)/python engine/benches/compare.py $(BENCH_OPTIONS)

test-servers: setup
	$(WSBENCH) check --install $(FOUR)

# Every server: installs what the catalogue needs, builds it and holds it against the contract.
check-all: setup
	$(WSBENCH) check --install

# Each server is built twice, in folders of different names, and the files compared.
check-builds: setup
	$(WSBENCH) build --install
	$(BIN)/python scripts/same_artefacts.py

# A wheel with the engine in it, for glibc 2.28 and newer, in dist/.
wheel: $(WHEEL)/.done
	rm -rf dist
	$(FOUND) $(WHEEL)/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(WHEEL)/bin/auditwheel show dist/*.whl

# The wheels of a release: for this machine, and for arm64, whose engine carries out a load in qemu-user where that is installed.
wheels: wheel setup
	$(FOUND) rustup target add aarch64-unknown-linux-gnu
	WSBENCH_ARCH=aarch64 $(FOUND) $(WHEEL)/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	scripts/foreign_engine.sh dist/*aarch64.whl

# A wheel with the checkout's engine in an empty environment, and its first load. `check-fresh` does the same with one of `make wheel`.
test-wheel: setup
	rm -rf build/wheel
	WSBENCH_ENGINE=$(ENGINE) $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel/dist .
	python3 -m venv build/wheel
	build/wheel/bin/pip install --quiet build/wheel/dist/*.whl
	PATH="$(CURDIR)/build/wheel/bin:$$PATH" XDG_CACHE_HOME="$(CURDIR)/build/cache" scripts/first_load.sh

$(WHEEL)/.done: requirements/wheel.txt
	$(TOOLS) install venv c rust=$(RUST)
	python3 -m venv $(WHEEL)
	$(WHEEL)/bin/pip install --quiet --require-hashes --requirement requirements/wheel.txt
	touch $@

# What a new machine makes of it: the checkout and the wheel, each in a root of its own.
check-fresh: wheel
	scripts/fresh_machine.sh --if-possible trixie 'make setup && scripts/first_load.sh'
	scripts/fresh_machine.sh --if-possible bookworm 'make setup && scripts/first_load.sh'
	scripts/fresh_machine.sh --if-possible --wheel trixie scripts/first_load.sh

clean:
	rm -rf $(VENV) dist build engine/target servers/*/build servers/*/target
