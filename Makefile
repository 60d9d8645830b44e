# Every target installs what it needs into .venv; nothing outside the checkout is touched.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RUFF_PATHS := sdk runtime wasi_host oops_lane tests tools-examples

.PHONY: demo test check bench lint lock clean

$(READY): requirements.lock pyproject.toml native/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(READY) ## builds, signs, publishes and runs csv-profile on a real CSV
	@PATH="$(CURDIR)/$(BIN):$$PATH" tools-examples/demo.sh

test: $(READY) ## every test
	cargo test --quiet --locked --manifest-path native/Cargo.toml
	$(BIN)/pytest --benchmark-disable $(PYTEST_ARGS)

check: $(READY) lint ## the fast inner loop: static checks, and tests without the soaks
	$(BIN)/pytest --benchmark-disable -q -m "not soak and not slow"

bench: $(READY) ## the benchmarks
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
