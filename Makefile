# The whole project from a fresh clone: `make trace`, `make test`. Everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(shell command -v uv >/dev/null 2>&1 && test -n "$$USE_UV" && echo "uv pip install --python $(BIN)/python" || echo "$(BIN)/python -m pip install --quiet")

.PHONY: setup trace test check bench format clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -c constraints.txt -e '.[dev]'
	touch $@

trace: setup
	$(BIN)/python -m mechinterp.trace --ckpt step_4000

test: setup
	$(BIN)/python -m pytest -q -n 2

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	for file in tests/benchmarks/bench_*.py; do PYTHONPATH=. $(BIN)/python $$file || exit 1; done

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache
