# `make demo` and `make test` work in a fresh clone: the first of them makes the environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo check test docs fuzz ratchet install clean

demo: install
	rm -rf demo
	$(BIN)/sgdec demo --directory demo

# Files in their order: by number of tests, as xdist would have it, the longest come last and one worker waits.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# Plugins as others write them are checked against the types of the public names.
OTHERS := tests/third_party/*.py examples/plugin/*.py examples/model/mgu.py

# What a developer runs after each change; `make test` is what has to pass. Properties are tried on fewer examples, and
# files that are slow as a whole are not even imported.
check: install
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --disable-error-code type-arg $(OTHERS)
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(PYTEST) -m "not slow" --hypothesis-profile check $$(grep -rlE '^(pytestmark = |    )pytest.mark.slow' tests --include 'test_*.py' | sed 's/^/--ignore=/')

test: install
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --disable-error-code type-arg $(OTHERS)
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(PYTEST)

# The site, in build/site/index.html. Offline; warnings, broken links included, are errors.
docs: install
	$(BIN)/python -m sphinx -q -n -W --keep-going -d build/doctrees docs build/site
	@echo "build/site/index.html"

# 10,000 damaged files and wrong calls; see docs/howto/fuzzing.md. Others: make fuzz FUZZ="--seed 1 --target lattice".
fuzz: install
	$(BIN)/python -m fuzz $(FUZZ)

# Speeds, their ratios, and memory; BASE=COMMIT compares with an earlier commit and fails where one fell. On a quiet machine.
ratchet: install
	$(BIN)/python benchmarks/ratchet.py $(if $(BASE),--base $(BASE)) $(RATCHET)

install: $(INSTALLED)

# Again whenever the dependencies, their pinned versions or the entry points change. An egg-info of an older build system
# would be read before the installed metadata.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,test,docs]"
	rm -rf sgdec.egg-info
	touch $@

clean:
	rm -rf demo build dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
