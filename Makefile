# make demo     set up .venv if needed, then solve one small private problem of each kind
# make test     set up .venv if needed, then lint, type-check and run the tests
# make test-all the same with every repetition, for changes of the mathematics
# make bench    speed and memory beside what a user would write instead
# make bench-peers   error and time beside Opacus and diffprivlib (DATA=DIR: with MNIST from there)
# make mutants  plant bugs in a copy, one at a time: do the tests fail?
# make docs     build the documentation into site/
# make tutorials   run the notebooks in docs/tutorials and store their outputs

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
QUICKLY := .venv/.quickly

export MPLBACKEND := Agg
# tests compile many programs more than once, in several processes; to keep a small one takes longer
test: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.pytest_cache/jax
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.2
test: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := 0
# tests compile much and compute little: half the time without optimisation. `make test-all`
# compiles as users do, and so does tests/test_as_users_compile.py
test: export XLA_FLAGS = $(if $(TACIT_TESTS),,$(shell cat $(QUICKLY) 2>/dev/null))
# there is a process for every core: more threads in each only wait for one another, busily
test: export OPENBLAS_NUM_THREADS := 1
test: export NPROC := 1
# tests start Python often: it need not compile Tacit every time, whatever the caller's habit
test: export PYTHONDONTWRITEBYTECODE :=
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test browser test-all bench bench-peers mutants docs tutorials lint clean

demo: $(READY)
	$(BIN)/tacit demo

test: $(READY) $(QUICKLY) lint browser
	$(BIN)/pytest -n auto --dist worksteal

# A browser for the tests of the report, where one can be had; else pytest says what did not run
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit 0; done; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null || exit 0; \
	export DEBIAN_FRONTEND=noninteractive; \
	timeout 60 apt-get update -qq >/dev/null 2>&1; \
	timeout 240 apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1 || true

test-all: export TACIT_TESTS := all
test-all: test

bench: $(READY)
	$(BIN)/pytest benchmarks -o python_files='bench_*.py' -q -s

bench-peers: export OMP_NUM_THREADS := 1
bench-peers: export OPENBLAS_NUM_THREADS := 1
bench-peers: export XLA_FLAGS := --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1
bench-peers: $(READY) .venv-peers/.ready
	$(BIN)/python benchmarks/peers.py --python .venv-peers/bin/python $(if $(DATA),--mnist "$(DATA)")

mutants: $(READY)
	$(BIN)/python tests/mutants.py --jobs 2

docs: $(READY)
	$(BIN)/mkdocs build --strict

tutorials: $(READY)
	$(BIN)/python tests/tutorials.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Tacit needs Python 3.11 or newer"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# of the flags that make XLA compile quickly, those that this version knows: it dies of others
$(QUICKLY): $(READY)
	for flags in "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false" \
	  "--xla_backend_optimization_level=0" ""; do \
	  XLA_FLAGS="$$flags" $(BIN)/python -c 'import jax; jax.devices()' 2>/dev/null && echo "$$flags" > $@ && break; done

# versions that Tacit's own environment cannot have
.venv-peers/.ready: benchmarks/peers.requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --requirement $<
	touch $@

clean:
	rm -rf .venv .venv-peers site demo-result .pytest_cache .mypy_cache .ruff_cache
