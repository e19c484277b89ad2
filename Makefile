# The whole project from a fresh clone: `make trace`, `make test`. Everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(shell command -v uv >/dev/null 2>&1 && test -n "$$USE_UV" && echo "uv pip install --python $(BIN)/python" || echo "$(BIN)/python -m pip install --quiet")

.PHONY: setup trace explore test browser check bench docs peers format clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -c constraints.txt -e '.[dev]'
	touch $@

trace: setup
	$(BIN)/python -m mechinterp.trace --ckpt step_4000

# The page lies in traces/; the first time takes some minutes, then everything is in the cache.
explore: setup
	mkdir -p traces
	$(BIN)/python -m analyses explorer --out traces/explorer.html
	$(BIN)/python -m webbrowser "file://$(CURDIR)/traces/explorer.html" || true

test: setup
	$(BIN)/python -m pytest -q -n 2

# Debian's chromium for the explorer's tests, which are skipped without one.
browser:
	command -v chromium >/dev/null || (apt-get update && apt-get install -y --no-install-recommends chromium)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	failed=0; for file in tests/benchmarks/bench_*.py; do \
		printf '\n== %s\n' $$file; PYTHONPATH=. $(BIN)/python $$file || failed=1; done; exit $$failed

# Environments of the tools that we are compared with, in build/peers (about 2 GB each).
peers: setup
	$(BIN)/python -m tests.peer_environment

docs: setup
	$(BIN)/mkdocs build --strict

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache
