# Every target installs what it needs into .venv; nothing outside the checkout is touched.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
LAUNCHER := native/target/release/toolcell-native
RUFF_PATHS := sdk runtime wasi_host oops_lane tests tools-examples

.PHONY: demo test check bench lint lock clean

$(READY): requirements.lock pyproject.toml native/pyproject.toml
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)' || { \
	  echo "toolcell needs Python 3.11 or newer, and $(PYTHON) is none; name one that is:" \
	    "make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@# `venv` keeps the interpreter of one that is there already.
	@test ! -e .venv || $(BIN)/python -c '$(IS_NEW_ENOUGH)' 2>&- || rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(LAUNCHER): native/Cargo.toml native/Cargo.lock $(shell find native/src -name '*.rs')
	cargo build --quiet --release --locked --manifest-path native/Cargo.toml
	touch $@

demo: $(READY) ## builds, signs, publishes and runs csv-profile on a real CSV
	@PATH="$(CURDIR)/$(BIN):$$PATH" tools-examples/demo.sh

test: $(READY) $(LAUNCHER) ## every test
	cargo test --quiet --locked --manifest-path native/Cargo.toml
	$(BIN)/pytest --benchmark-disable $(PYTEST_ARGS)

check: $(READY) $(LAUNCHER) lint ## the fast inner loop: static checks, and tests without the soaks
	$(BIN)/pytest --benchmark-disable -q -m "not soak and not slow"

bench: $(READY) $(LAUNCHER) ## the benchmarks
	$(BIN)/pytest tests/bench --benchmark-only --benchmark-columns=min,median,mean,max,rounds

lint: $(READY)
	$(BIN)/ruff check $(RUFF_PATHS)
	$(BIN)/ruff format --check $(RUFF_PATHS)
	$(BIN)/mypy
	$(BIN)/lint-imports
	cargo fmt --check --manifest-path native/Cargo.toml
	cargo clippy --quiet --locked --all-targets --manifest-path native/Cargo.toml -- -D warnings

lock: ## pins the newest versions that pyproject.toml admits
	$(BIN)/uv pip compile --quiet pyproject.toml --group dev --extra sdk --generate-hashes \
	  --no-header --universal --python-version 3.11 --upgrade -o requirements.lock

clean:
	rm -rf .venv native/target demo-out
