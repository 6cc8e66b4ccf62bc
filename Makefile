# `make demo` and `make test` work in a fresh clone: the first command creates the environment.

BIN := .venv/bin
# The Python of .venv, once that is installed, unless another one is named: then .venv is made again if it differs.
PYTHON ?= $(shell test -x $(BIN)/python && test -e .venv/.installed && echo $(BIN)/python || echo python3)

.PHONY: demo check test exhaustive view-test view-types docs fuzz ratchet public-names release-check install clean

demo:
	@$(PYTHON) install.py demo
	rm -rf demo
	PYTHONDONTWRITEBYTECODE= $(BIN)/sgdec demo --directory demo

# Three workers on two cores, because some tests wait for their own processes. Files run in the order of collection; in
# the order of xdist, by number of tests, the longest come last and the others wait. Bytecode is kept, whatever the
# environment says: each worker imports every test file, and tests start hundreds of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# For each change during development; `make test` has to pass before a merge. Test files that are marked slow as a whole
# are not imported. Two workers, because none of these tests waits.
check: install
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(PYTEST) -n 2 -m "not slow" $$(grep -rlE '^(pytestmark = \[?|    )pytest.mark.slow' tests --include 'test_*.py' | sed 's/^/--ignore=/')

test: install
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(PYTEST)

# All tests at full length: with all of their random cases, of which `make test` tries a third
# (tests/helpers/breadth.py), and those that are marked exhaustive.
exhaustive: install
	SGDEC_EXHAUSTIVE=1 $(PYTEST)

# The tests of `make test` that need a browser, Debian's package chromium; without one they fail here, and skip there.
view-test: install
	SGDEC_NEED_BROWSER=1 $(PYTEST) tests/view tests/pages tests/tasks/diagnosis/test_page.py tests/tasks/test_comparison_page.py

# The scripts of the viewer, checked by TypeScript, which npm puts into build/types.
view-types:
	mkdir -p build/types
	npm install --silent --no-save --prefix build/types typescript@5.9.3 @types/d3@7.4.3
	build/types/node_modules/.bin/tsc --project tests/view/tsconfig.json

# The site, in build/site/index.html. Needs no network; warnings, including broken links, are errors.
docs: install
	$(BIN)/python -m sphinx -q -n -W --keep-going -d build/doctrees docs build/site
	@echo "build/site/index.html"

# 10,000 damaged files and wrong calls; see docs/howto/fuzzing.md. With options: make fuzz FUZZ="--seed 1 --target lattice".
fuzz: install
	$(BIN)/python -m fuzz $(FUZZ)

# Speeds, their ratios, and memory; BASE=COMMIT compares with an earlier commit and fails if one fell. Needs an idle machine.
ratchet: install
	$(BIN)/python benchmarks/ratchet.py $(if $(BASE),--base $(BASE)) $(RATCHET)

# The list of public names with their signatures, which a test compares.
public-names: install
	$(BIN)/python -m tests.helpers.public_names

# Builds what would be published from this commit into dist/, and tries it; see CONTRIBUTING.md. Publishes nothing.
release-check: install
	$(BIN)/python .github/release_check.py

# Everything; `make demo` installs less.
install:
	@$(PYTHON) install.py all

clean:
	rm -rf demo build dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
