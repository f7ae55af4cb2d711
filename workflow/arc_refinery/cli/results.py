"""Commands that write what people and others read."""

from dataclasses import dataclass
from pathlib import Path

from arc_refinery import config


@dataclass
class Report:
    """Write the report of an experiment: Markdown, tables, plots, gallery."""

    config: Path  # the validated config of the experiment
    folder: Path  # of the experiment's results
    output: Path  # the Markdown file

    def run(self) -> None:
        from arc_refinery.reporting.report import write_report

        write_report(config.load(self.config), self.folder, self.output)


@dataclass
class Curves:
    """Draw the curves of one training."""

    log: Path  # its training.jsonl
    output: Path  # a PNG file

    def run(self) -> None:
        from arc_refinery.reporting.training import draw_curves

        draw_curves(self.log, self.output)


@dataclass
class Submission:
    """Write Kaggle's submission.json: two guesses for each test input, by vote among the attempts."""

    verdicts: tuple[Path, ...]  # of all attempts that may vote
    challenges: Path  # Kaggle's JSON file of the tasks
    output: Path
    solutions: Path | None = None  # Kaggle's JSON file of their test outputs: prints the score

    def run(self) -> None:
        from arc_refinery.evaluation.submission import count_votes, make_submission, score, write_submission
        from arc_refinery.kaggle import read_challenges

        tasks = {task.task_id: task for task in read_challenges(self.challenges, self.solutions)}
        submission = make_submission(tasks, count_votes(self.verdicts, tasks))
        write_submission(submission, tasks, self.output)
        if self.solutions:
            print(score(submission, tasks))


@dataclass
class ConfigDocs:
    """Write the JSON schema and the tables of config/README.md from the config models."""

    folder: Path = Path("config")

    def run(self) -> None:
        from arc_refinery.config_docs import write

        write(self.folder)
