"""Commands that check machines, environments and memory before an experiment."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from arc_refinery import config
from arc_refinery.cli.command import Command
from arc_refinery.doctor.findings import JOBS, JobKind
from arc_refinery.errors import InputError
from arc_refinery.evaluation.power import Plan
from arc_refinery.files import atomic_write
from arc_refinery.outputs import Writes, json_file, page
from arc_refinery.stages import Files


class Doctor(Command):
    """Check hardware, software, sandbox, sampling and training before an experiment; exit code 1 if a check fails.

    Sampling and training really run, with the embedded model and the config's settings. On a cluster,
    `snakemake --profile condor doctor` makes each kind of job check the machine and environment that it gets.

    Example:
        arc-refinery doctor --configfile config/config.yaml --jobs cpu
    """

    configfile: Path = Path("config/config.yaml")  # config of an experiment of either kind
    jobs: tuple[JobKind, ...] = JOBS  # kinds of jobs to check on this machine
    # write the findings of the one kind in --jobs to this file, and no table
    findings: Annotated[Path | None, Writes(json_file, "job", "findings")] = None
    others: Files = ()  # findings files of other kinds; deleted once they are in the table
    output: Annotated[Path, Writes(page, "Doctor")] = Path("results/doctor.md")  # the table

    def run(self) -> None:
        from arc_refinery.doctor.findings import failures, findings_page, read_job_report, write_job_report
        from arc_refinery.doctor.stages import examine

        if self.findings and len(self.jobs) != 1:
            raise InputError(f"--findings holds the findings of one kind of job; --jobs has {len(self.jobs)}")
        reports = [read_job_report(path) for path in self.others]
        experiment = config.load_experiment(self.configfile)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        for job in self.jobs:
            reports.append(examine(experiment, job, reports[-1] if reports else None, self.output.parent))
        if self.findings:
            write_job_report(self.findings, reports[-1])
            return
        page = findings_page(reports)
        with atomic_write(self.output) as unfinished:
            unfinished.write_text(page)
        print(page)
        for path in self.others:
            path.unlink()  # or the next run would take them for its own
        if failed := failures(reports):
            names = "; ".join(finding.check for finding in failed)
            raise InputError(f"{len(failed)} checks failed: {names}. see {self.output} for what to do")


class Memory(Command):
    """Estimate the GPU memory that an experiment's jobs need from its config; exit code 1 if a job does not fit.

    Example:
        arc-refinery doctor memory --configfile config/multi-turn-rl.yaml
    """

    configfile: Path  # config of an experiment of either kind

    def run(self) -> None:
        from arc_refinery.sampling.gpu_memory import counts, memory_page

        experiment = config.load_experiment(self.configfile)
        print(memory_page(experiment), flush=True)
        if unfit := [count.job for count in counts(experiment) if count.faults]:
            raise InputError(
                f"{self.configfile}: does not fit: {', '.join(unfit)}; change the keys that are named above"
            )


class Power(Command):
    """Print the smallest difference that a comparison will show, by its numbers of tasks and of trainings.

    Of the primary comparison of an experiment, or of tasks solved by any two sides.

    Examples:
        arc-refinery doctor power --configfile config/multi-turn-rl.yaml --difference 0.015
        arc-refinery doctor power --configfile config/code-demo.yaml --tasks 447 --rate 0.4 --spread 0.03
        arc-refinery doctor power --tasks 500 --changed 0.2
    """

    configfile: Path | None = None  # config of a refining experiment
    tasks: config.PositiveInt | None = None  # number of tasks; default: as many as the primary comparison's set has
    # assumed, by default as measured in the domain (docs/methods.md): share of tasks that only one side solves
    changed: config.Share | None = None
    rate: config.Share | None = None  # assumed, where pass rates are compared: share of attempts that are right
    spread: config.Share | None = None  # assumed: standard deviation of the true differences of trainings
    difference: config.Share | None = None  # also print the tasks that show this difference

    def run(self) -> None:
        from arc_refinery.reporting.power import power_page

        plan, title = self._plan()
        if self.changed is not None:
            plan = replace(plan, changed=self.changed)
        if self.rate is not None:
            plan = plan.with_rate(self.rate)
        if self.spread is not None:
            plan = replace(plan, run_spread=self.spread)
        print(power_page(plan, title, self.difference))

    def _plan(self) -> tuple[Plan, str]:
        if self.configfile is None:
            if self.tasks is None:
                raise InputError("nothing to plan: give --configfile, or --tasks and their number")
            if self.rate is not None:
                raise InputError("--rate is for pass rates of a turn; give --configfile with evaluation.primary.turn")
            return Plan(self.tasks), "Tasks solved by two sides"
        from arc_refinery.refining.config import Refining

        experiment = config.load_experiment(self.configfile)
        primary = experiment.evaluation.primary if isinstance(experiment, Refining) else None
        plan = experiment.plan_of(self.tasks) if isinstance(experiment, Refining) else None
        if primary is None:
            raise InputError(f"{self.configfile}: has no evaluation.primary; give --tasks and their number instead")
        if plan is None:
            raise InputError(f"{self.configfile}: only its file tells the size of {primary.set}; give --tasks, too")
        for flag, value, is_used in (
            ("--changed is for tasks solved", self.changed, not plan.n_attempts),
            ("--rate is for pass rates", self.rate, plan.n_attempts),
        ):
            if value is not None and not is_used:
                raise InputError(f"{flag}; the primary comparison is of {primary.outcome}")
        title = f"{primary.title} on {primary.set}: {primary.outcome}"
        return plan, title
