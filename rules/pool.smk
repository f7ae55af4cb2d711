# A run on a cluster: it ends when it is asked to, and says what HTCondor's executor leaves unsaid about its jobs.
import os
import signal
import sys
from pathlib import Path

from snakemake.logging import logger

from arc_refinery.errors import InputError

# Jobs start `arc-refinery` of the environment that runs Snakemake, whether or not anything activated it for them.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

pool_watches = []


def interrupt(*_):
    raise KeyboardInterrupt


def end_on_signals():
    """End at SIGTERM and SIGHUP as at Ctrl-C, which removes the jobs: Snakemake would wait for them, maybe for ever."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)


def watch_pool():
    from arc_refinery import condor  # it reads the pool's configuration

    try:
        pool_watches.append(
            condor.watch(
                Path(workflow.executor_settings.jobdir, "snakemake-rules.log"),
                every=workflow.remote_execution_settings.seconds_between_status_checks,
                say=logger.warning,
                give_up=lambda: os.kill(os.getpid(), signal.SIGINT),
            )
        )
    except InputError as error:
        raise WorkflowError(str(error))


def stop_watching():
    for watch in pool_watches:
        watch.stop()


onstart:
    if not workflow.local_exec:
        end_on_signals()
    if workflow.executor_plugin.name == "htcondor":
        watch_pool()


onsuccess:
    stop_watching()


onerror:
    stop_watching()
