"""Commands that write reports, plots, submissions and reference pages."""

import re
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from arc_refinery import config
from arc_refinery.cli.command import Command
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write
from arc_refinery.outputs import Outputs, Writes, folder, json_file, lines, picture, report, submission, table
from arc_refinery.stages import Files

# Control characters in a model's text, which a terminal would obey
UNPRINTABLE = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


class WriteReport(Command):
    """Write the report of an experiment: Markdown, HTML, tables, plots, gallery or transcripts, table of attempts.

    Example:
        arc-refinery report --configfile results/demo/settings.json --results results/demo --output results/demo.md
    """

    configfile: Path  # the validated config of the experiment
    results: Path  # folder of the experiment's results, where report/ and attempts.parquet are written
    output: Path  # Markdown file; the HTML file gets the same name

    def writes(self) -> Outputs:
        shared = ["set", "arm", "turn", "task_id", "attempt_id"]  # columns of attempts.parquet
        pictures = folder(
            self.results / "report", "the pictures and tables of a report", [], r"gallery|.*\.(png|svg|csv)"
        )
        return {
            "output": report(self.output, "Experiment"),
            "results": [pictures, table(self.results / "attempts.parquet", shared)],
        }

    def run(self) -> None:
        from arc_refinery.reporting import page
        from arc_refinery.reporting.report import write_report

        experiment, settings = config.load_experiment(self.configfile), self.results / "settings.json"
        other = config.load_experiment(settings) if settings.is_file() else experiment
        for key in ("kind", "experiment"):
            if getattr(other, key) != getattr(experiment, key):
                raise InputError(
                    f"{self.configfile}: {key} is {getattr(experiment, key)}, but {settings} says "
                    f"{getattr(other, key)}; give the settings.json in the folder of the results"
                )
        write_report(experiment, self.results, self.output)
        page.write_page(self.output, self.output.with_suffix(".html"))


class Compare(Command):
    """Compare experiments, arms of them, or the scores in files of any evaluation, paired by task or question.

    Without arms, arms with the same name are compared. Differences are an earlier side minus a later one. Files are
    JSON lines, JSON, CSV, Parquet, or logs of inspect_ai, with a row per attempt; with commas between them, those of a
    side are its runs.

    Examples:
        arc-refinery compare results/demo results/mine:refine-trained
        arc-refinery compare samples-a.jsonl samples-b.jsonl --task doc_id --score exact_match --runs seed
        arc-refinery compare a-1.jsonl,a-2.jsonl,a-3.jsonl b-1.jsonl,b-2.jsonl,b-3.jsonl
    """

    sides: Annotated[tuple[str, ...], Positional]  # folders of results, <folder>:<arm>, or files of scores
    set: tuple[str, ...] = ()  # sets of tasks or questions; default: all that two sides have
    # of files: column that names the task, or several with commas; default: task_id, doc_id, ...
    task: config.Line | None = None
    score: config.Line | None = None  # of files: column with the score; default: solved, exact_match, ...
    runs: config.Line | None = None  # of files: column that names the run, such as its seed; default: all are of one
    side: config.Line | None = None  # of files: column that names the side; default: each file is one
    where: tuple[str, ...] = ()  # of files: <column>=<value>, which rows must have
    # write to this Markdown file instead; the HTML file and a picture get the same name
    output: Path | None = None

    def writes(self) -> Outputs:
        if self.output is None:
            return {"output": []}
        return {"output": [*report(self.output, "Comparison"), *picture(self.output.with_suffix(".png"))]}

    def run(self) -> None:
        from arc_refinery.evaluation.score_files import is_score_file

        text = self._scores() if any(map(is_score_file, self.sides)) else self._experiments()
        if self.output is None:
            print(text)
            return
        from arc_refinery.reporting import page

        with atomic_write(self.output) as unfinished:
            unfinished.write_text(f"{text}\n")
        page.write_page(self.output, self.output.with_suffix(".html"))

    def _experiments(self) -> str:
        from arc_refinery.evaluation.score_files import SUFFIXES
        from arc_refinery.evaluation.sides import read_sides
        from arc_refinery.reporting.compare import comparison

        for name in ("task", "score", "runs", "side", "where"):
            if getattr(self, name):
                raise InputError(f"--{name} applies to score files; {self.sides[0]} is not one: leave the flag out")
        for text in self.sides:
            if Path(text).is_file():
                raise InputError(f"{text}: is not a folder of results; files of scores end in {', '.join(SUFFIXES)}")
        return comparison(read_sides(self.sides), self.set, self._picture)

    @property
    def _picture(self) -> Path | None:
        return self.output.with_suffix(".png") if self.output else None

    def _scores(self) -> str:
        from arc_refinery.evaluation.score_files import ScoreColumns, is_score_file
        from arc_refinery.reporting.scores import scores_page

        if others := [text for text in self.sides if not is_score_file(text)]:
            raise InputError(
                f"{others[0]}: is not a file of scores; compare files with files, or experiments with each other"
            )
        if self.set:
            raise InputError("--set is for experiments; rows of files are chosen with --where <column>=<value>")
        where = [text.partition("=") for text in self.where]
        if wrong := [column for column, sign, _ in where if not (column and sign)]:
            raise InputError(f"--where is {wrong[0]}; expected <column>=<value>, such as filter=strict-match")
        chosen = tuple((column, value) for column, _, value in where)
        columns = ScoreColumns(self.task or "", self.score or "", self.runs or "", self.side or "", chosen)
        return scores_page([_files(text) for text in self.sides], columns, self._picture)


def _files(text: str) -> tuple[Path, ...]:
    """Return the files of a side; names may have commas."""
    names = [text] if Path(text).exists() else text.split(",")
    if "" in names:
        raise InputError(f"{text}: has a comma without a file on one of its sides")
    return tuple(map(Path, names))


class Show(Command):
    """Print an attempt at a task, with what it refines, or an episode.

    Of each turn: the prompt or feedback, the answer, and the verdict on its program. `report samples` prints what a
    training sampled.

    Examples:
        arc-refinery show results/demo
        arc-refinery show results/demo:refine-trained --task 68b67ca3
    """

    side: Annotated[config.Line, Positional]  # folder of results, or <folder>:<arm>; default: the last arm
    task: config.Line | None = None  # id of a task or question, or its beginning; default: the first that was solved
    set: config.Line | None = None  # set of tasks or questions; default: the first that has the id
    attempt: config.NonNegativeInt | None = None  # number of the attempt or episode; default: the first that is correct

    def run(self) -> None:
        from arc_refinery.evaluation.sides import side
        from arc_refinery.reporting.show import show

        text = show(side(self.side), self.set, self.task, self.attempt)
        print(text.translate(UNPRINTABLE))


class ShowSamples(Command):
    """Print distinct completions of a step of GRPO with their prompts, rewards and advantages.

    Example:
        arc-refinery report samples mine/trained --step 4 --worst
    """

    adapter: Annotated[config.Line, Positional]  # folder of an adapter
    step: config.PositiveInt | None = None  # optimizer step; default: the last one
    number: config.PositiveInt = 3  # distinct completions to print
    worst: bool = False  # those with the lowest reward, instead of the highest

    def run(self) -> None:
        from arc_refinery.reporting.training import show_samples

        print(show_samples(Path(self.adapter), self.step, self.number, self.worst).translate(UNPRINTABLE))


class Export(Command):
    """Write attempts, episodes or texts of training as conversations, for trainers and evaluation tools of others.

    Examples:
        arc-refinery report export results/demo:refine-trained --only-right --output mine/chats.jsonl
        arc-refinery report export results/demo --form prompt-completion --output mine/rollouts.jsonl
        arc-refinery report export results/demo:refine-trained --form inspect --output mine/log.json
        arc-refinery report export results/tool-use-demo --training --output mine/texts.jsonl
    """

    side: Annotated[config.Line, Positional]  # folder of results, or <folder>:<arm>; default: all arms
    output: Path  # JSON lines; of the form inspect, JSON
    set: tuple[str, ...] = ()  # sets of tasks or questions; default: all
    # messages: a conversation with the answer, as for fine-tuning, each once; prompt-completion: TRL's, and that of
    # verifiers, for each arm and training; inspect: a log of inspect_ai, of one arm
    form: Literal["messages", "prompt-completion", "inspect"] = "messages"
    only_right: bool = False  # leave out what is not right on all checks
    training: bool = False  # instead, the texts of supervised training, as prompt and completion

    def writes(self) -> Outputs:
        if self.training:
            return {"output": [lines(self.output, "prompt", "completion", "task_id")]}
        if self.form == "inspect":
            return {"output": [json_file(self.output, "eval", "samples")]}
        begins = "messages" if self.form == "messages" else "prompt"
        return {"output": [lines(self.output, begins, "reward", "task_id")]}

    def run(self) -> None:
        from arc_refinery.evaluation.sides import side
        from arc_refinery.reporting.export import export, export_training

        ending = ".json" if self.form == "inspect" and not self.training else ".jsonl"
        if self.output.suffix != ending:
            raise InputError(f"--output {self.output}: expected a name that ends in {ending}")
        if self.training:
            shown = side(self.side)
            for flag, given in {
                "--set": self.set,
                "--form": self.form != "messages",
                "--only-right": self.only_right,
            }.items():
                if given:
                    raise InputError(f"{flag} is for attempts; leave it or --training out")
            if shown.arm:
                raise InputError(f"{self.side}: names an arm; texts of training belong to none: {shown.folder}")
            print(f"{self.output}: {export_training(shown, self.output):,} texts")
            return
        number = export(side(self.side), self.set, self.form, self.only_right, self.output)
        print(f"{self.output}: {number:,} conversations")


class Publish(Command):
    """Write a trained adapter as a folder for others, with a model card from the report, and upload it.

    The folder names the base model on the hub, and loads without this project. An upload needs `hf auth login`.

    Examples:
        arc-refinery report publish results/demo/adapters/trained --base owner/model --output mine/published
        arc-refinery report publish results/mine/adapters/trained --output mine/published --repository owner/adapter
    """

    adapter: Annotated[config.Line, Positional]  # results/<experiment>/adapters/<name>
    output: Path  # folder to write
    # base model on the hub, owner/name or owner/name@commit; default: the one that the experiment fetched
    base: config.Line | None = None
    license: config.Line | None = None  # for the card: as the hub names it, such as apache-2.0
    repository: config.Line | None = None  # upload the folder to this repository, owner/name
    public: bool = False  # make a new repository public
    overwrite: bool = False  # replace a folder that was published before, and files of a repository that is there

    def writes(self) -> Outputs:
        from arc_refinery.reporting.model_card import CARD, NAMES

        names = "|".join(map(re.escape, NAMES))
        return {"output": [folder(self.output, "a published adapter", ["adapter_config.json", CARD], names)]}

    def run(self) -> None:
        from arc_refinery.models.hub import upload_folder
        from arc_refinery.reporting import model_card

        if self.public and not self.repository:
            raise InputError("--public is for an upload; give --repository owner/name, too")
        if self.repository and not config.HUB_NAME.fullmatch(self.repository):
            raise InputError(f"--repository is {self.repository}; expected owner/name on the hub")
        if not self.overwrite and self.output.is_dir() and any(self.output.iterdir()):
            raise InputError(
                f"--output: {self.output} was published before; give --overwrite to replace it, or name another folder"
            )
        source = model_card.read_source(Path(self.adapter))
        base = model_card.base_on_hub(source, self.base)
        with atomic_write(self.output) as unfinished:
            model_card.write_folder(source, base, self.license, unfinished)
        print(f"{self.output}: read {model_card.CARD} before others do")
        if self.repository:
            print(upload_folder(self.output, self.repository, is_private=not self.public, may_overwrite=self.overwrite))


class Curves(Command):
    """Draw the curves of a finished training. TensorBoard shows those of a running one.

    Example:
        arc-refinery report curves --log mine/trained/training.jsonl --output mine/curves.png
    """

    log: Path  # training.jsonl of a finished training
    output: Annotated[Path, Writes(picture)]  # PNG file; an SVG file is written next to it

    def run(self) -> None:
        from arc_refinery.reporting.training import draw_curves

        draw_curves(self.log, self.output)


class Submission(Command):
    r"""Write Kaggle's submission.json: two guesses per test input, by vote among the attempts.

    Example:
        arc-refinery predictions submit --verdicts mine/turn1/verdicts/000.parquet --challenges mine/challenges.json \
            --output mine/submission.json
    """

    verdicts: Files  # verdicts on the attempts that vote
    challenges: Path  # Kaggle's JSON file of tasks
    output: Annotated[Path, Writes(submission)]  # JSON file to write
    solutions: Path | None = None  # Kaggle's JSON file of test outputs; if given, the score is printed

    def run(self) -> None:
        from arc_refinery.arc.kaggle import read_challenges
        from arc_refinery.domains.arc.submission import count_votes, make_submission, score, write_submission

        tasks = {task.task_id: task for task in read_challenges(self.challenges, self.solutions)}
        submission = make_submission(tasks, count_votes(self.verdicts, tasks))
        write_submission(submission, self.output)
        if self.solutions:
            print(score(submission, tasks))


class ConfigDocs(Command):
    """Write the JSON schema and the tables of config/README.md from the config models.

    Example:
        arc-refinery dev config
    """

    output: Path = Path("config")  # folder of schema.json and README.md

    def writes(self) -> Outputs:
        from arc_refinery.config.docs import SCHEMA

        return {"output": [json_file(self.output / SCHEMA, "$defs", "anyOf")]}

    def run(self) -> None:
        from arc_refinery.config.docs import write_docs

        write_docs(self.output)
