"""A model's chat template and token counts, for stages that only write prompts.

Importing transformers takes longer than such a job itself. The chat template and the tokenizer in a model's folder are
therefore read with the libraries that transformers uses for them, jinja2 and tokenizers. Other models, and models given
by hub name, are loaded with transformers.
"""

import json
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer

from arc_refinery.errors import ModelError
from arc_refinery.files import read_json, read_text, reading
from arc_refinery.programs import OPENED_THOUGHT


class Message(TypedDict):
    role: str
    content: str


# Classes of transformers that use tokenizer.json unchanged; others modify it.
PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
RENDER_SECONDS = 5.0  # CPU time for one conversation, which takes milliseconds; an endless loop also fills the memory
ANSWER = "<answer goes here>"
ANSWERED = (Message(role="user", content="question"), Message(role="assistant", content=ANSWER))


@dataclass(frozen=True, slots=True)
class Chat:
    """A model's chat template, and its tokenizer without added special tokens."""

    template: Any  # has the method `apply_chat_template` of transformers
    file: Path  # with the template
    tokens: Callable[[str], Sized]
    marks: re.Pattern[str]  # the special tokens, for `without_marks`

    def render(self, messages: Sequence[Message]) -> str:
        """Return a conversation's text, up to where the model answers."""
        with reading(self.file, "correct the template", "a chat template", ModelError), render_limit(self.file):
            text = str(self.template.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        if not text.strip():
            raise ModelError(f"{self.file}: renders a conversation as empty text; correct the template")
        return text

    def count(self, text: str) -> int:
        return len(self.tokens(text))


def special_marks(added_tokens: Mapping[int, AddedToken], others: str = "") -> re.Pattern[str]:
    """Return a pattern of the first characters of special tokens, and of `others`, a pattern of the same sort.

    Tokens in the form of a role's count even if the tokenizer does not call them special. Other added tokens are part
    of what models write: `<think>`, or a line break with the number of a row.
    """
    texts = [token.content for token in added_tokens.values() if token.special or token.content.startswith("<|")]
    patterns = [f"{re.escape(text[0])}(?={re.escape(text[1:])})" for text in sorted(texts)]
    return re.compile("|".join([*patterns, *([others] if others else [])]) or "(?!)")


def without_marks(text: str, marks: re.Pattern[str]) -> str:
    """Return a text in which no special token is left, `< |end|>` for `<|end|>`, and only what UTF-8 can write.

    For all text that the model has not sampled, token by token, and also for what it sampled once it is tokenised
    again: a program that prints or contains the text of a token would otherwise end its turn or begin another.
    """
    return marks.sub(r"\g<0> ", text.encode("utf-8", "backslashreplace").decode())


class FolderTemplate:
    """The chat template in a model's folder, to render with any options; without the tokenizer."""

    added_tokens_decoder: Mapping[int, AddedToken] = {}  # named as in transformers

    def __init__(self, template: str, special_tokens: Mapping[str, str], folder: Path) -> None:
        self._template = _environment().from_string(template)
        self._special_tokens = special_tokens
        self.name_or_path = str(folder)

    def apply_chat_template(self, messages: Sequence[Any], tokenize: bool, **options: Any) -> str:
        """Render a conversation, as the method of transformers with this name does."""
        assert not tokenize
        variables = {"tools": None, "documents": None, "add_generation_prompt": False} | options
        return self._template.render(messages=messages, **self._special_tokens, **variables)


def folder_template(folder: Path, enable_thinking: bool | None = None) -> FolderTemplate | None:
    """Return the chat template of a model's folder; None if only transformers can read it."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    settings = read_json(path, "the settings of a tokenizer")
    if not isinstance(settings, dict):
        return None
    file = folder / "chat_template.jinja"
    template = read_text(file, "a chat template") if file.is_file() else settings.get("chat_template")
    if not isinstance(template, str):
        return None
    # the tokens that the settings name are variables of the template
    tokens = {name: value for name, value in settings.items() if name.endswith("_token")}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    special_tokens = {name: text for name, text in texts.items() if isinstance(text, str)}
    try:
        return FolderTemplate(with_thinking(template, enable_thinking), special_tokens, folder)
    except TemplateSyntaxError:  # a tag that transformers may know
        return None


class _Transcript:
    """Renders a conversation for people: a server renders its own."""

    def apply_chat_template(self, messages: Sequence[Message], **_: Any) -> str:
        return "\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages)


# What servers' templates may read as special tokens: of Qwen and Llama, DeepSeek, Gemma, and Mistral
_MARKS_OF_SERVERS = re.compile(r"<(?=[|｜]|/?s>|(start|end)_of_turn>)|\[(?=/?(INST|SYSTEM_PROMPT|TOOL_CALLS)\])")
# The chat of a model that a server has: no template here, and no tokens to count
SERVED = Chat(_Transcript(), Path("the server"), lambda text: (), _MARKS_OF_SERVERS)


def load_chat(model_path: str, enable_thinking: bool | None = None) -> Chat:
    """Load a model's chat template and tokenizer; raise `ModelError` if it lacks either."""
    if chat := _folder_chat(Path(model_path), enable_thinking):
        return chat
    from arc_refinery.models.tokenizers import load_tokenizer

    tokenizer: Any = load_tokenizer(model_path)
    if tokenizer.chat_template is None:
        raise ModelError(f"{model_path}: has no chat template; give a model that was trained for chat")
    file = _template_file(Path(tokenizer.name_or_path))
    with reading(file, "correct the template", kind=ModelError):
        begin_answers(tokenizer, "", enable_thinking)  # which fails if none of several is the default one

    def tokens(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    return Chat(tokenizer, file, tokens, special_marks(tokenizer.added_tokens_decoder))


def _folder_chat(folder: Path, enable_thinking: bool | None) -> Chat | None:
    """Return the chat of a model's folder; None if only transformers can read it."""
    file, config, jinja = (folder / name for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    if not all(path.is_file() for path in (file, config, jinja)):
        return None
    settings = read_json(config, "the settings of a tokenizer")
    if not isinstance(settings, dict) or settings.get("tokenizer_class") not in PLAIN_CLASSES:
        return None
    if not read_text(jinja, "a chat template").strip():
        raise ModelError(f"{jinja}: is empty, so prompts would be empty; download the model again")
    with reading(jinja, "correct the template", "a chat template", ModelError):
        template = folder_template(folder, enable_thinking)
    with reading(file, "download the model again", kind=ModelError):
        tokenizer = Tokenizer.from_file(str(file))

    def tokens(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    marks = special_marks(tokenizer.get_added_tokens_decoder())
    return None if template is None else Chat(template, jinja, tokens, marks)


def with_thinking(template: str, enable_thinking: bool | None) -> str:
    """Return a chat template that lets the model think first, or not; None: as it does by itself."""
    return template if enable_thinking is None else f"{{% set enable_thinking = {enable_thinking} %}}{template}"


def begin_answers(tokenizer: Any, prefix: str, enable_thinking: bool | None = None) -> None:
    """Make the chat template begin answers with `prefix`, and think first or not: TRL renders conversations itself."""
    if not prefix and enable_thinking is None:
        return
    template = with_thinking(tokenizer.get_chat_template(), enable_thinking)  # of several, the default one
    if prefix:
        template = template.removesuffix("\n") + f"{{%+ if add_generation_prompt %}}{{{{ {prefix!r} }}}}{{% endif %}}"
    tokenizer.chat_template = template


def opened_thought(prompt: str) -> str:
    """Return the tag at the end of a rendered prompt that opens a thought, `<think>\\n`; empty without one.

    It belongs to the answer. Completions do not show it, and one that is cut in its thought has no tag at all.
    """
    opened = re.search(rf"{OPENED_THOUGHT.pattern}\s*\Z", prompt)
    return opened[0] if opened else ""


def ids_after_answer(tokenizer: Any, ends: Collection[int], conversation: Sequence[Message]) -> list[int]:
    """Return the ids that the chat template writes after `ANSWER`, without leading spaces, up to a next answer.

    Raise `ModelError` if they do not begin with one of `ends`, the tokens that end a completion: a model that was
    trained with this template would not end its completions, and a next turn could not continue them. Nothing may
    follow a last answer, though: then the template does not say how it ends.
    """
    is_open = conversation[-1]["role"] != "assistant"
    model = Path(tokenizer.name_or_path)
    template = _template_file(model)
    with reading(template, "correct the template", "a chat template of answers", ModelError), render_limit(model):
        text = tokenizer.apply_chat_template(list(conversation), tokenize=False, add_generation_prompt=is_open)
    _, separator, after = str(text).rpartition(ANSWER)
    ids: list[int] = tokenizer(after.lstrip(), add_special_tokens=False)["input_ids"]
    if separator and (not ids or ids[0] in ends):
        return ids
    settings = "generation_config.json" if (model / "generation_config.json").exists() else "config.json"
    raise ModelError(
        f"{model}: its chat template ({template.name}) does not end an answer with a token that ends a completion: "
        f"{after.lstrip()[:20]!r} follows it, and completions end at {tokenizer.convert_ids_to_tokens(list(ends))} "
        f"(eos_token_id in {settings}, eos_token in tokenizer_config.json), so they would run to their limit; if this "
        f"model ends answers with the template's token, add its id {ids[:1]} to eos_token_id; else correct the template"
    )


def _template_file(model: Path) -> Path:
    """Return the file with a model's chat template."""
    file = model / "chat_template.jinja"
    return file if file.exists() else model / "tokenizer_config.json"


@contextmanager
def render_limit(model: Path | str) -> Iterator[None]:
    """Raise `ModelError` if a chat template takes more than `RENDER_SECONDS` of CPU time; only in the main thread.

    jinja limits a single range, but not loops inside loops.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise ModelError(
            f"{model}: a conversation is not rendered after {RENDER_SECONDS:g} s; does the chat template loop? "
            "Correct the template"
        )

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, RENDER_SECONDS, 1.0)  # again, as a filter of the template may catch it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class _Generation(Extension):
    """`{% generation %}` marks the model's text for training; a prompt's text does not change."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that transformers gives chat templates (5.17, utils/chat_template_utils.py)."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
