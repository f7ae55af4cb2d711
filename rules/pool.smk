# Runs on a cluster: exit cleanly on signals, and report what HTCondor's executor does not say about its jobs.
import atexit
import os
import signal
import sys
from pathlib import Path

from snakemake.logging import logger

from arc_refinery.errors import InputError

# Jobs use the `arc-refinery` of the environment that runs Snakemake, activated or not.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))


def interrupt(*_):
    """As Ctrl-C, which removes the jobs; once, for a terminal that is closed sends two signals."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def end_on_signals():
    """End at SIGTERM and SIGHUP: Snakemake would wait for its jobs at the one, maybe for ever, and drop dead at the other."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)


def watch_pool():
    from arc_refinery.cluster import condor  # it reads the pool's configuration

    try:
        watch = condor.watch(
            Path(workflow.executor_settings.jobdir),
            every=workflow.remote_execution_settings.seconds_between_status_checks,
            say=logger.warning,
            give_up=lambda: os.kill(os.getpid(), signal.SIGTERM),
        )
    except InputError as error:
        raise WorkflowError(str(error))
    atexit.register(watch.stop)  # also after an exception, where Snakemake calls no `onerror`


onstart:
    if not workflow.local_exec:
        end_on_signals()
    if workflow.executor_plugin.name == "htcondor":
        watch_pool()
