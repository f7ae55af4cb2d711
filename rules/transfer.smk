# Pools without a shared file system (profiles/condor-transfer): what HTCondor takes along with a job and brings back, in
# addition to its inputs and outputs. A job starts in an empty folder of its machine.
from snakemake.io import is_flagged
from snakemake.resources import Resource

from arc_refinery.config.layers import Layers
from arc_refinery.errors import InputError
from arc_refinery.reporting.provenance import COMMIT, commit
from arc_refinery.runs.project import check_archive, check_that_it_travels
from arc_refinery.sampling.shard import progress_path

os.environ[COMMIT] = commit()  # the profile lets it reach jobs, which have the code without its history


def code_and_config() -> list[str]:
    """The code, the config with its bases and the files that it names; absolute paths are expected on the machine."""
    models = [experiment.model.path] if experiment.model.folder else []
    named = [file.path for file in experiment.files_named() if file.key != "model.path"]
    functions = [code.path for _, code, _ in experiment.own_functions]
    environment = "" if image else os.environ.get("ARC_REFINERY_ENVIRONMENT", "")
    bases = Layers.of(config, config_origin()).files[1:]
    paths = {"rules", "workflow", "config", *bases, *models, *map(str, [*named, *functions]), environment} - {"", "."}
    return sorted(path for path in paths if not path.startswith(("/", "workflow/", "config/")))


def folders(rule, wildcards) -> list[str]:
    """Outputs that are folders; of a training also checkpoints and TensorBoard's."""
    outputs = [path for path in rule.expand_output(wildcards)[0] if is_flagged(path, "directory")]
    if not any("/adapters/" in path for path in outputs):
        return outputs
    return [*outputs, f"{outputs[0]}.checkpoints", f"{rule.expand_log(wildcards).log}.tensorboard"]


def also_written(rule):
    """A function of wildcards: logs, benchmark, and what sampling and training continue from after an eviction."""

    def paths(wildcards):
        shards = [path for path in rule.expand_output(wildcards)[0] if "shard" in rule.wildcard_names]
        written = [*rule.expand_log(wildcards), rule.expand_benchmark(wildcards), *folders(rule, wildcards)]
        return ", ".join(map(str, filter(None, [*written, *(progress_path(Path(path)) for path in shards)])))

    return paths


GOES_ALONG = code_and_config()
if workflow.is_main_process:
    try:
        if not image and (archive := os.environ.get("ARC_REFINERY_ENVIRONMENT")):
            check_archive(archive)
        check_that_it_travels(GOES_ALONG)
    except InputError as error:
        sys.exit(f"arc-refinery: {error}")

for job_rule in workflow.rules:
    resources_of_transfer = {
        "htcondor_transfer_input_files": ", ".join(GOES_ALONG),
        "htcondor_transfer_output_files": also_written(job_rule),
        "classad_TransferFolders": lambda wildcards, rule=job_rule: ",".join(folders(rule, wildcards)),
    }
    if image:
        resources_of_transfer |= {"universe": "container", "container_image": image}
    for name, value in resources_of_transfer.items():
        job_rule.resources[name] = Resource(name, value)
