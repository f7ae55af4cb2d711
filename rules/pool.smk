# Runs on a cluster: exit cleanly on signals, and report what HTCondor's executor does not say about its jobs.
import sys

from arc_refinery.cluster.signals import end_on_signals
from arc_refinery.errors import InputError

# Jobs use the `arc-refinery` of the environment that runs Snakemake, activated or not.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def watch_pool():
    from arc_refinery.cluster import condor  # it reads the pool's configuration

    every = workflow.remote_execution_settings.seconds_between_status_checks
    try:
        condor.watch(Path(workflow.executor_settings.jobdir), every, logger.warning)
    except InputError as error:
        raise WorkflowError(str(error))


onstart:
    if not workflow.local_exec:
        end_on_signals()
    if workflow.executor_plugin.name == "htcondor":
        watch_pool()
    elif this_run and not workflow.local_exec:
        this_run.leaves_jobs_in(workflow.executor_plugin.name)
