# How runs start and end: clean exits on signals; on a cluster, what HTCondor's executor does not
# say about its jobs.
from arc_refinery.config import Compared
from arc_refinery.errors import InputError
from arc_refinery.runs.ending import end_on_signals, interrupt_once
from arc_refinery.runs.project import keep_edited

POOL_RUNS = Path("logs/condor")  # the folders of runs under profiles/condor

# Jobs use the `arc-refinery` of the environment that runs Snakemake, activated or not.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


# On one machine, jobs share all GPUs: a second vLLM counts the memory of the first as its own, and finds none for its cache
if workflow.local_exec and "gpu" not in workflow.global_resources:
    n_gpus = (getattr(experiment.resources, kind).gpus for kind in ("sample", "train"))
    workflow.register_resource("gpu", max(1, *n_gpus))


def watch_condor_jobs():
    """Remove jobs that ended runs left on an HTCondor pool, and watch those of this run if it sends any there."""
    if not on_htcondor() and not POOL_RUNS.exists():
        return
    from arc_refinery.runs import condor  # it reads the pool's configuration

    try:
        if on_htcondor():
            check_names()
            every = workflow.remote_execution_settings.seconds_between_status_checks
            logs = {str(workflow.dag.jobid(job)): list(job.log) for job in workflow.dag.needrun_jobs()}
            condor.watch(Path(workflow.executor_settings.jobdir), every, logger.warning, logs)
        else:
            condor.clear(POOL_RUNS, logger.warning)
    except InputError as error:
        raise WorkflowError(str(error))


def check_names():
    """Raise `InputError` for a file whose name the executor would take for two."""
    for file in experiment.files_named() if workflow.storage_settings.shared_fs_usage else ():
        if " " in str(file.path):
            raise InputError(
                f"{config_origin()}: {file.key} is {file.path}; HTCondor's executor cannot handle its space; rename it"
            )


def warn_about_cores():
    """Say so if a job on this machine runs more threads than it gets cores."""
    n_threads = max(map(experiment.n_threads, ("sample", "train")))
    if workflow.cores < n_threads:
        logger.warning(
            f"{config_origin()}: with --cores {workflow.cores}, the {n_threads} threads of a job (model.n_threads) share"
            f" cores and are many times slower; type --cores {n_threads} if this machine has them"
        )


def check_image():
    """Refuse an image within an image, and one that is asked for and not named; say so if one is named and not used."""
    if on_htcondor() and runs_in_image:
        raise WorkflowError("--sdm apptainer: the profiles for HTCondor run jobs in ARC_REFINERY_IMAGE; leave it out")
    if image and not on_htcondor() and not runs_in_image:
        logger.warning(f"ARC_REFINERY_IMAGE is {image}, and jobs run without it; add --sdm apptainer, or unset it")
    if runs_in_image and not image:
        raise WorkflowError("--sdm apptainer: there is no image; export ARC_REFINERY_IMAGE=/path/to/image.sif")


def keep_edited_pages():
    """Keep pages that somebody has edited, before Snakemake removes them to make them again."""
    outputs = [
        output for job in workflow.dag.needrun_jobs() for output in job.output if output.endswith((".md", ".html"))
    ]
    made = {output: workflow.persistence.metadata(output) for output in outputs}
    keep_edited({Path(output): record.endtime for output, record in made.items() if record}, logger.warning)


def on_htcondor():
    return workflow.executor_plugin.name == "htcondor"


def save_declaration():
    """Keep what the experiment declares before its evaluation begins."""
    if isinstance(experiment, Compared):
        from arc_refinery.reporting.registration import register

        try:
            register(
                experiment,
                Path("results", experiment.experiment),
                lambda text: logger.warning(f"{config_origin()}: {text}"),
            )
        except InputError as error:
            raise WorkflowError(str(error))


onstart:
    save_declaration()
    if screen and workflow.local_exec:
        benchmarks = {workflow.dag.jobid(job): job.benchmark for job in workflow.dag.needrun_jobs()}
        screen.expect(benchmarks, Path("logs", experiment.experiment, "benchmarks"))
    if workflow.local_exec:
        warn_about_cores()
        interrupt_once()
    else:
        end_on_signals()
    check_image()
    keep_edited_pages()
    watch_condor_jobs()
    if this_run and not workflow.local_exec and not on_htcondor():
        this_run.leaves_jobs_in(workflow.executor_plugin.name)


onsuccess:
    if screen:
        logger.info(screen.end(has_succeeded=True))


onerror:
    if screen:
        logger.error(screen.end())
