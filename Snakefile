# arc-refinery: teach a code model to refine its own wrong programs, and find out whether it did.
import os
import sys

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import min_version

from arc_refinery.runs.ending import exit_quietly_on_interrupt

if workflow.is_main_process:
    exit_quietly_on_interrupt()  # before the imports that take long

from arc_refinery.config import check_files, environment_warnings, part, read_yaml, validate_experiment
from arc_refinery.errors import InputError
from arc_refinery.runs.lock import acquire_run_lock
from arc_refinery.runs.screen import Screen
from arc_refinery.sampling.gpu_memory import memory_warnings

min_version("9.19")

# Snakemake merges a --configfile into the keys of a `configfile:`, also of a workflow with this one as a module (snakedeploy);
# jobs get the keys alone
typed = workflow.config_settings.overwrite_config
names = {"experiment", "base"} & set(typed)
if names and all(config.get(name) == typed[name] for name in names):
    config = typed
elif not workflow.configfiles and not {"experiment", "base"} & set(config):

    configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "rules/common.smk"


try:
    for path in workflow.configfiles:  # Snakemake takes the last of two equal keys
        read_yaml(Path(path))
    experiment = validate_experiment(config, config_origin())
    check_files(experiment, config_origin(), workflow.is_main_process, config)  # jobs parse this file again
    kind = part(experiment.kind, "jobs")
except InputError as error:
    sys.exit(f"arc-refinery: {error}")
if experiment.model.has_address and "address" not in workflow.global_resources:
    workflow.register_resource("address", 1)  # sampling jobs wait for each other: each has model.max_connections
if workflow.is_main_process:
    screen = Screen.replace(logger, workflow.output_settings, Path("results", f"{experiment.experiment}.html"))
    warnings = [*environment_warnings(experiment, config_origin()), *memory_warnings(experiment, config_origin())]
    for warning in warnings:
        logger.warning(warning)
    for sentence in filter(None, (experiment.expected_power, experiment.expected_cost)):
        logger.info(sentence)
    this_run = acquire_run_lock(Path(".snakemake"), logger.warning)


pathvars:
    results=f"results/{experiment.experiment}",
    logs=f"logs/{experiment.experiment}",
    benchmarks=f"logs/{experiment.experiment}/benchmarks",


# No job calls the Hugging Face hub: what it reads was fetched. A job ends when this process is killed (arc_refinery.runs.ending).
# The first words are Snakemake's own prefix.
prefix = f"set -euo pipefail; export HF_HUB_OFFLINE=1 ARC_REFINERY_SNAKEMAKE={os.getpid()}"
image = os.environ.get("ARC_REFINERY_IMAGE")
runs_in_image = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
if image and runs_in_image:
    prefix += ' PYTHONPATH="$PWD/workflow"'  # the image has the code from when it was built

    container: image


shell.prefix(f"{prefix}; ")


wildcard_constraints:
    tasks="[a-z0-9.-]+",
    branch="turn1(-[a-z0-9.@-]+)?|[a-z0-9.@-]+-turn[0-9]+",
    shard="[0-9]+",
    job="[0-9]+",


if experiment.downloads:

    include: "rules/fetch.smk"  # models and data sets of the Hugging Face hub


for path in experiment.rules:  # of the kind's own stages: `rules` of its Experiment

    include: path


include: "rules/training.smk"  # adapters: supervised fine-tuning, GRPO
include: "rules/report.smk"  # compare the arms
include: "rules/bookkeeping.smk"  # settings, curves of trainings
include: "rules/doctor.smk"  # checks before an experiment: snakemake doctor
include: "rules/pool.smk"  # runs on a cluster: messages about its jobs, and a clean end


if Path("workflow/pretraining").is_dir():  # in a checkout

    include: "rules/pretrain.smk"  # the embedded models; not a part of any experiment


if not workflow.storage_settings.shared_fs_usage:

    include: "rules/transfer.smk"  # jobs on machines that do not see this folder


rule all:
    default_target: True
    input:
        rules.report.output,
