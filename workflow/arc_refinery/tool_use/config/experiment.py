"""The configuration of a tool-use experiment: questions, tools, episodes, training, evaluation."""

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializeAsAny,
    create_model,
    model_validator,
)

from arc_refinery.config.arms import BaseArm, Compared, Primary
from arc_refinery.config.base import (
    EPISODES,
    EVALUATION,
    ROWS,
    ConfigError,
    Line,
    Mass,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    RunName,
    Share,
    Strict,
    Temperature,
    Text,
    check_names,
    faults_in,
)
from arc_refinery.config.experiment import SampledTogether, TrainedRow, Wanted
from arc_refinery.config.loading import DOMAINS, domain_part, experiment_class
from arc_refinery.config.lora import Imitation
from arc_refinery.config.own_code import Entry
from arc_refinery.config.rewards import Functions
from arc_refinery.config.sampling import Sandbox
from arc_refinery.config.training import Methods
from arc_refinery.errors import InputError
from arc_refinery.models.hub import Download
from arc_refinery.refining.config import RowsSet, TaskSet
from arc_refinery.tool_use.config.rewards import REWARDS, ToolGrpo
from arc_refinery.tool_use.config.tool_signatures import signatures

CallFormatName = Literal["auto", "hermes", "qwen-xml"]  # tool_use/calls/formats
ToolName = Literal["calculator", "execute_code", "python", "read_file"]
WITH_PROGRAMS = ("execute_code", "python")  # tools that run a program of the model
Given = Literal["own", "other-task"]
ResultChars = Annotated[PositiveInt, Field(le=8000)]  # up to 4 bytes each: the sandbox sends 32 kB of output


def _names(value: Any) -> Any:
    """Split the names of an entry that is one word: `mine.py:Index,where=process,retry_on=Away+Busy`."""
    return value.split("+") if isinstance(value, str) else value


class ToolChoice(Entry):
    key: ClassVar = "tool"
    tool: str = Field(
        description=f"A built-in tool ({', '.join(f'`{name}`' for name in get_args(ToolName))}), or `file.py:name`, a "
        "function or class of your own (docs/tool-use.md)."
    )
    where: Literal["sandbox", "process"] = Field(
        "sandbox",
        description="For an own tool: without files and network, or in the job's own process.",
    )
    seconds: PositiveFloat | None = Field(
        None,
        ge=0.01,
        le=86_400,
        description="Time limit of a call; default: `sandbox.cpu_seconds`, or 10 in the job's process.",
    )
    retry_on: Annotated[tuple[Line, ...], BeforeValidator(_names)] = Field(
        (),
        description="For `where: process`: exceptions (`[OperationalError]`; also those derived from them) "
        "which mean that the tool could not work (docs/tool-use.md).",
    )
    max_result_chars: ResultChars | None = Field(
        None, description="Longest result; longer ones are cut; default: `generation.max_result_chars`."
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that decide the tool's results."""
        return (self.own_code.path,) if self.own_code else ()

    @model_validator(mode="after")
    def _settings_fit_the_tool(self) -> Self:
        built_in = get_args(ToolName)
        if self.own_code is None and self.tool not in built_in:
            raise ValueError(f"{self.tool!r:.100} is not a tool; expected {', '.join(built_in)}, or `file.py:name`")
        if self.own_code is None and self.where == "process":
            raise ValueError(f"where belongs to a tool of your own (`file.py:name`), not to {self.tool}; remove it")
        if self.where != "process" and self.retry_on:
            raise ValueError("retry_on is for tools in the job's process: set where to `process`, or remove it")
        if self.own_code is None and self.seconds is not None and self.tool not in WITH_PROGRAMS:
            raise ValueError(f"seconds belongs to a tool that runs a program, not to {self.tool}; remove it")
        return self


class Questions(TaskSet):
    """A set of tasks of a domain, asked with tools; a subclass per domain has the keys of its sets, too."""

    domain: Line = Field(
        description="The domain whose tasks are asked: `arc`, `code`, `gsm8k`, `text`, or the package of one of your "
        "own (docs/tool-use.md). It brings the keys of its `evaluation.sets`."
    )
    tools: Annotated[tuple[ToolChoice, ...], EPISODES] = Field(
        (), description="Tools for these questions; default: the experiment's."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _has_the_keys_of_its_domain(cls, value: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        if cls is not Questions or not isinstance(value, dict):
            return check(value)
        domain = value.get("domain", value.get("form"))  # its earlier name, which `GONE` explains
        if not isinstance(domain, str):
            return check({key: value[key] for key in value if key in cls.model_fields})
        own: type[Self] = questions_class(domain)
        return own.model_validate(value)

    @model_validator(mode="after")
    def _nothing_is_revealed(self) -> Self:
        refused = [key for key in ("n_revealed", "two_rules") if getattr(self, key, None)]
        if getattr(self, "source", "") == "two-rules":
            refused.append("source is `two-rules`, which")
        if refused:
            raise ValueError(f"{refused[0]} is about what feedback reveals, and tool use gives none; remove it")
        return self

    @classmethod
    def variants(cls) -> list[Any]:
        """The classes of built-in domains."""
        return [questions_class(domain) for domain in DOMAINS]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        if cls is not Questions:
            return dict(handler(core_schema))
        own: Any = create_model(Questions.__name__, __base__=(Questions, RowsSet))  # for packages of the user
        return {"anyOf": [handler(variant.__pydantic_core_schema__) for variant in (*cls.variants(), own)]}


@cache
def questions_class(domain: str) -> Any:
    """Return the class of sets of a domain's tasks. Raises `ConfigError`."""
    task_set = experiment_class("refining", domain).section_types()["task_set"]
    if clash := sorted({"domain", "tools"} & task_set.model_fields.keys()):
        raise ConfigError(f"domain {domain}: its sets have the key {clash[0]}, which sets of tool use have; rename it")
    name = f"{domain.rpartition('.')[2].capitalize()}{Questions.__name__}"
    key = Questions.model_fields["domain"]
    kind: Any = Literal[domain] if domain in DOMAINS else Line
    return create_model(name, __base__=(Questions, task_set), __module__=__name__, domain=(kind, key))


class QuestionSets(Strict):
    train: tuple[SerializeAsAny[Questions], ...] = Field((), description="Sets of questions to train on.")
    heldout: tuple[SerializeAsAny[Questions], ...] = Field(
        min_length=1, description="Sets of questions to compare the arms on."
    )
    files: Line | None = Field(
        None,
        description="Folder for `read_file`: its subfolder `<question_id>` can be read in that question's episodes.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> "QuestionSets":
        check_names("sets", [questions.name for questions in (*self.train, *self.heldout)])
        for number, questions in enumerate(self.train):
            if changed := questions.not_default("shards", "validation", "caveat"):
                raise ValueError(f"train.{number}.{changed[0]} belongs to sets that are held out; remove it")
        return self


class Generation(Strict):
    enable_thinking: bool = Field(True, description="Whether the chat template lets the model think first.")
    max_turn_tokens: PositiveInt = Field(description="Longest turn of the model, in tokens.")
    max_episode_tokens: PositiveInt = Field(
        description="Longest episode without its prompt, in tokens; includes the results of calls."
    )
    max_calls: PositiveInt = Field(8, description="Maximum number of tool calls per episode.")
    max_calls_per_turn: PositiveInt = Field(4, description="Maximum number of tool calls per turn.")
    max_result_chars: ResultChars = Field(2000, description="Longest result of a call; longer ones are cut.")
    stop_token: str = Field(
        "<|im_end|>", min_length=1, max_length=100, description="Token of the model that ends a turn."
    )
    call_format: CallFormatName = Field(
        "auto",
        description="How the model writes tool calls (docs/tool-use.md); `auto`: as its chat template does. For a "
        "server, `auto` gives it the tools; with a format, the system message describes them.",
    )
    system: Text = Field("", description="System message before each question; empty: none.")
    # training samples with keys of its own
    temperature: Annotated[Temperature, EVALUATION] = Field(
        1.0, description="Softmax temperature in the evaluation; 0: greedy."
    )
    top_p: Annotated[Mass, EVALUATION] = Field(1.0, description="Probability mass kept in the evaluation.")
    top_k: Annotated[NonNegativeInt, EVALUATION] = Field(
        0, description="Number of likeliest tokens kept in the evaluation; 0: all."
    )

    @model_validator(mode="after")
    def _an_episode_holds_a_turn(self) -> "Generation":
        if self.max_turn_tokens > self.max_episode_tokens:
            raise ValueError(
                f"max_turn_tokens = {self.max_turn_tokens} is more than max_episode_tokens = {self.max_episode_tokens}"
            )
        return self


class ToolSft(Imitation):
    without_tools: Annotated[Share, ROWS] = Field(0.5, description="Share of SFT examples that call no tool.")
    n_questions: Annotated[PositiveInt | None, ROWS] = Field(
        None, description="Training questions per set to demonstrate, from the first; default: all."
    )


class ToolTraining(Methods):
    sft: ToolSft | None = Field(None, description=Methods.model_fields["sft"].description)
    grpo: ToolGrpo | None = Field(None, description=Methods.model_fields["grpo"].description)


class Episodes(NamedTuple):
    """The one turn of an arm, as reports of all kinds name it."""

    n_predictions: int
    adapter: str
    control: None = None


class ToolArm(BaseArm):
    adapter: RunName = Field(
        "none",
        description="Adapter used: `none`; `sft`; `trained`, one arm per run if there are several; or the "
        "name of one run.",
    )
    tools: bool = Field(True, description="Whether tools are offered.")
    given: Given = Field(
        "own",
        description="What tools have of a task (the puzzle of `arc`): of the question's `own`; or of the set's next "
        "one, `other-task`, a control (docs/tool-use.md).",
    )
    _n_predictions: int = PrivateAttr(1)  # that of the evaluation, which sets it

    @property
    def turns(self) -> tuple[Episodes]:
        return (Episodes(self._n_predictions, self.adapter),)

    def branch(self, turn: int) -> str:
        return self.name

    def with_adapters(self, name: str, adapters: Mapping[str, str]) -> "ToolArm":
        return self.model_copy(
            update={"name": f"{self.name}-{name}", "adapter": adapters.get(self.adapter, self.adapter)}
        )


class ToolEvaluation(Strict):
    n_predictions: PositiveInt = Field(8, description="Episodes per held-out question.")
    arms: tuple[ToolArm, ...] = Field(
        min_length=1, description="Ways to answer that are compared; the first one is the baseline of the others."
    )
    questions_per_batch: PositiveInt = Field(
        8,
        description="Questions whose episodes run together; results and memory use depend on it.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> "ToolEvaluation":
        check_names("arms", [arm.name for arm in self.arms])
        for arm in self.arms:
            arm._n_predictions = self.n_predictions
        return self


class ToolUse(Compared[ToolArm]):
    kind: Literal["tool-use"] = Field("tool-use", description="Kind of experiment: learn to call tools.")
    data: QuestionSets = Field(description="Questions for training and evaluation.")
    tools: tuple[ToolChoice, ...] = Field(
        (ToolChoice(tool="calculator"),),
        min_length=1,
        description="Tools that the model can call: each a name, or a section.",
    )
    generation: Generation = Field(description="Limits and sampling of episodes.")
    sandbox: Sandbox = Field(default_factory=lambda: Sandbox(), description="Limits on executed programs.")
    training: ToolTraining | None = Field(
        None, description="Training of a LoRA adapter; without it, nothing is trained."
    )
    evaluation: ToolEvaluation = Field(description="Arms to compare.")
    ends_with_answer: ClassVar = False  # but at generation.stop_token

    @property
    def rules(self) -> list[str]:
        return ["rules/tools.smk", "rules/compare.smk"]  # questions -> conversations to learn from; episodes

    def files_named(self) -> list[Wanted]:
        wanted = super().files_named()
        for key, questions in self._sets_by_key.items():
            wanted += questions.files_named(key)
        if self.data.files:
            what = "a folder with one folder per question"
            wanted.append(Wanted("data.files", Path(self.data.files), what, "folder"))
        what = "a Python file, relative to this folder"
        for key, tool in self.all_tools.items():
            if tool.own_code:
                wanted.append(Wanted(key, tool.own_code.path, what))
        return wanted

    def faults_of_contents(self) -> list[str]:
        from arc_refinery.tool_use.episodes.rendering import check_folder

        named = faults_in((key, questions.check_contents) for key, questions in self._sets_by_key.items())
        faults = [*super().faults_of_contents(), *named]
        if self.model.folder:
            try:
                check_folder(self.model.folder, self.generation)
            except InputError as error:
                faults.append(str(error))
        faults += [
            f"evaluation.arms: {arm.name} has given: {arm.given}, but the set {held.name} gives its tools nothing; "
            "remove it"
            for arm in self.arms
            for held in self.data.heldout
            if arm.given != "own" and held.domain in DOMAINS  # the job refuses other domains: planning imports none
            if not domain_part(held.domain, "domain:Domain").given_to_tools
        ]
        names: dict[str, list[str]] = {}  # names of tools by the list that they are in
        for key, tool in self.all_tools.items():
            try:
                offered = [signature.name for signature in signatures(tool.own_code)] if tool.own_code else [tool.tool]
            except InputError as error:
                faults.append(f"{key}: {error}")
                continue
            taken = names.setdefault(key.rpartition(".")[0], [])
            faults += [
                f"{key}: a second tool is called {name}; rename or remove one" for name in offered if name in taken
            ]
            taken += offered
        return faults

    @property
    def reward_functions(self) -> Functions:
        return REWARDS

    @property
    def sampled_together(self) -> SampledTogether:
        return SampledTogether(self.evaluation.questions_per_batch * self.evaluation.n_predictions)

    @property
    def sampled_folders(self) -> list[str]:
        return [f"{held}/{arm.name}" for held in self.set_names for arm in self.arms]

    @property
    def trained_row(self) -> TrainedRow | None:
        return TrainedRow(self.model.window, self.generation.max_episode_tokens) if self.training else None

    @property
    def evaluated_sets(self) -> tuple[Questions, ...]:
        return self.data.heldout

    @cached_property
    def compared(self) -> list[tuple[str, str]]:
        """Each arm with the first one, and those that differ only in adapter or only in tools with each other."""
        names = list(self.repetitions)
        with_baseline = [(name, names[0]) for name in names[1:]]
        others = []
        for earlier, later in combinations(names, 2):
            a, b = (self.repetitions[name][0] for name in (earlier, later))
            differ = [name for name in ("adapter", "tools", "given") if getattr(a, name) != getattr(b, name)]
            if len(differ) == 1:  # with tools minus without, own minus the control
                is_turned = (a.tools, a.given == "own") > (b.tools, b.given == "own")
                others.append((earlier, later) if is_turned else (later, earlier))
        seen = {frozenset(pair) for pair in with_baseline}
        return with_baseline + [pair for pair in others if frozenset(pair) not in seen]

    @property
    def arm_to_show(self) -> str:
        """The last arm with tools and an adapter, by the name of its repetitions; no control."""
        arms_called = {name: arms[0] for name, arms in self.repetitions.items() if arms[0].given == "own"}
        with_tools = [name for name, arm in arms_called.items() if arm.tools] or list(self.repetitions)
        trained = [name for name in with_tools if self.repetitions[name][0].adapter != "none"]
        return (trained or with_tools)[-1]

    @property
    def primaries(self) -> list[Primary]:
        """Of each set: the share of right episodes, of the arm to show against the first one."""
        first = next(iter(self.repetitions))
        pair = (self.arm_to_show, first)
        sets = [held.name for held in self.data.heldout if not held.validation]
        return [Primary(set=name, arms=pair, turn=1) for name in sets if self.arm_to_show != first]

    @property
    def most_answers(self) -> tuple[int, int] | None:
        sizes = [held.expected_size for held in self.data.heldout]
        n = sum(size or 0 for size in sizes) * len(self.arms) * self.evaluation.n_predictions
        return (n, self.generation.max_episode_tokens) if all(sizes) else None

    def sources(self) -> Iterable[Download | None]:
        return [self.model.download, *(of for questions in self.sets.values() for of in questions.downloads)]

    def trained_on(self) -> Iterable[Download | None]:
        return (download for questions in self.data.train for download in questions.downloads)

    @property
    def _sets_by_key(self) -> dict[str, Questions]:
        """Every set, by its place in the config."""
        sides = {"train": self.data.train, "heldout": self.data.heldout}
        return {f"data.{side}.{number}": one for side, sets in sides.items() for number, one in enumerate(sets)}

    @cached_property
    def sets(self) -> dict[str, Questions]:
        return {questions.name: questions for questions in (*self.data.train, *self.data.heldout)}

    def tools_of(self, questions: str) -> tuple[ToolChoice, ...]:
        """The tools of a set of questions."""
        return self.sets[questions].tools or self.tools

    @property
    def all_tools(self) -> dict[str, ToolChoice]:
        """Every choice of a tool, by its key: those of the experiment, then those of sets."""
        choices = {f"tools.{index}": tool for index, tool in enumerate(self.tools)}
        for key, questions in self._sets_by_key.items():
            choices |= {f"{key}.tools.{index}": tool for index, tool in enumerate(questions.tools)}
        return choices

    @property
    def modules_of_python(self) -> bool:
        """Whether programs may import what the tool `python` offers: answers of all arms and sets, or of none."""
        return any(tool.tool == "python" for tool in self.all_tools.values())

    def reads_files(self, tools: Iterable[ToolChoice]) -> bool:
        return any(tool.tool == "read_file" for tool in tools)

    def n_shards(self, questions: str) -> int:
        return next(held.shards for held in self.data.heldout if held.name == questions)

    def arm(self, name: str) -> ToolArm:
        return next(arm for arm in self.arms if arm.name == name)

    def adapter_of(self, arm: str) -> str | None:
        """The adapter that samples an arm's episodes."""
        name = self.arm(arm).adapter
        return None if name == "none" else name

    @model_validator(mode="after")
    def _a_server_is_asked_what_it_can(self) -> Self:
        if self.model.is_served and (changed := self.generation.not_default("enable_thinking", "stop_token", "top_k")):
            raise ValueError(
                f"generation.{changed[0]}: the chat template is the server's, and it samples; remove it, and set what "
                "its documentation says in model.extra_body"
            )
        return self

    @model_validator(mode="after")
    def _what_is_used_is_there(self) -> "ToolUse":
        if self.training and not self.data.train:
            raise ValueError("data.train is missing: there is nothing to train on")
        grpo, counts = self.training and self.training.grpo, [questions.expected_size for questions in self.data.train]
        if grpo and all(counts) and grpo.n_heldout >= sum(n or 0 for n in counts):
            raise ValueError(
                f"training.grpo.n_heldout = {grpo.n_heldout} leaves none of the training questions; lower it"
            )
        if self.reads_files(self.all_tools.values()) and not self.data.files:
            raise ValueError("data.files is missing: `read_file` reads from that folder")
        adapters = ["none", *self.adapters]
        self.check_arm_names()
        if unknown := [arm for arm in self.arms if arm.adapter not in adapters]:
            raise ValueError(
                f"evaluation.arms: {unknown[0].name} samples with the adapter {unknown[0].adapter}; expected one of "
                f"{', '.join(adapters)}{self.no_adapters}"
            )
        for arm in self.arms:
            if arm.given != "own" and not arm.tools:
                raise ValueError(f"evaluation.arms: {arm.name} has given: {arm.given}, but it has no tools; remove it")
        if self.model.window <= self.generation.max_episode_tokens:
            raise ValueError(
                f"model.window = {self.model.window} leaves no room for a prompt beside "
                f"generation.max_episode_tokens = {self.generation.max_episode_tokens}; raise one or lower the other"
            )
        taken = {"adapters", "fetched", "report", "training"}
        if clash := sorted(set(self.sets) & taken):
            raise ValueError(f"data: the name {clash[0]} is taken; choose another")
        return self
