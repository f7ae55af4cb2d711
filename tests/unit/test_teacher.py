"""Feedback as a teacher: what the teacher reads, and what is learned from it."""

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from checkout import TINY
from decided_turns import Sampling, ids_of
from factories import ARC, make_grid, make_prompt, make_task

from arc_refinery.arc.tasks import Pair
from arc_refinery.models.chat import Message
from arc_refinery.refining.domains.arc.prompts import first_turn, load_template

if TYPE_CHECKING:  # they import transformers
    from transformers import PreTrainedTokenizerBase

    from arc_refinery.refining.rollout import TrainingPrompt

GRID, TURNED, TWICE = make_grid("12", "34"), make_grid("24", "13"), make_grid("43", "21")
TEMPLATE = load_template("compact")
HEAD = "```python\nfrom common import *\n\ndef transform(grid):\n"
FLIPPED, TURN, RAISES = (f"{HEAD}    return {value}\n```" for value in ("np.fliplr(grid)", "np.rot90(grid)", "grid[9]"))


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerBase":
    from arc_refinery.models.tokenizers import load_tokenizer

    return load_tokenizer(TINY)


def asked(name: str) -> "TrainingPrompt":
    from arc_refinery.refining.rollout import TrainingPrompt

    task = make_task(name, train=(Pair(GRID, TURNED), Pair(TURNED, TWICE)), test=(Pair(GRID, TURNED),))
    return TrainingPrompt.of(ARC, make_prompt(task, messages=tuple(first_turn(task, TEMPLATE))))


def taught(
    tokenizer: Any, executor: Any, answers: Sequence[tuple[int, str]], **changes: Any
) -> "tuple[list[TrainingPrompt], list[str], list[str | None]]":
    """Prompts; the feedback on each answer; the text that its teacher reads. An answer is to a prompt's number."""
    from arc_refinery.refining.teacher import Teacher

    prompts = [asked("a"), asked("b")]
    grades = list(ARC.grade([prompts[number].answer(text) for number, text in answers], (executor,)))
    scorer: Any = SimpleNamespace(attempted=[SimpleNamespace(grade=grade) for grade in grades])
    settings: dict[str, Any] = {"include_errors": False, "max_tokens": 1000, "is_placebo": False} | changes
    teacher = Teacher(domain=ARC, prompts=prompts, scorer=scorer, wording=TEMPLATE, **settings)
    trainer = Sampling(tokenizer, None, [[]])
    trainer.rows = [{"prompt_index": number} for number, _ in answers]
    asked_for: list[Any] = [prompts[number].prompt for number, _ in answers]
    feedbacks = [ARC.feedback(prompt, grade, TEMPLATE) for prompt, grade in zip(asked_for, grades, strict=True)]
    read = [None if ids is None else tokenizer.decode(ids) for ids in teacher(trainer)]
    return prompts, feedbacks, read


def prompt_with(tokenizer: Any, prompt: "TrainingPrompt", feedback: str) -> str:
    (task,) = prompt.conversation
    content = f"{task['content']}\n\nFeedback on an answer that is not shown:\n\n{feedback}"
    conversation: list[Message] = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    return str(tokenizer.decode(ids_of(tokenizer, text)))


def test_a_teacher_reads_the_prompt_and_the_feedback_on_a_wrong_answer(tokenizer: Any, executor: Any):
    answers = [(0, FLIPPED), (0, TURN), (1, RAISES)]
    prompts, feedbacks, read = taught(tokenizer, executor, answers)
    assert "np.fliplr" not in str(read[0]), "it would copy the answer"
    assert read == [prompt_with(tokenizer, prompts[0], feedbacks[0]), None, None]
    _, _, with_errors = taught(tokenizer, executor, answers, include_errors=True)
    assert with_errors == [read[0], None, prompt_with(tokenizer, prompts[1], feedbacks[2])]


def test_a_prompt_that_leaves_no_room_has_no_teacher(tokenizer: Any, executor: Any):
    _, _, (text,) = taught(tokenizer, executor, [(0, FLIPPED)])
    n_tokens = len(ids_of(tokenizer, str(text)))
    assert taught(tokenizer, executor, [(0, FLIPPED)], max_tokens=n_tokens)[2] == [text]
    assert taught(tokenizer, executor, [(0, FLIPPED)], max_tokens=n_tokens - 1)[2] == [None]


def test_a_placebo_is_the_next_wrong_answer_to_another_task(tokenizer: Any, executor: Any):
    answers = [(0, FLIPPED), (0, RAISES), (1, TURN), (1, RAISES)]
    prompts, feedbacks, read = taught(tokenizer, executor, answers, include_errors=True, is_placebo=True)
    assert feedbacks[0] != feedbacks[3]
    assert read == [
        prompt_with(tokenizer, prompts[0], feedbacks[3]),
        prompt_with(tokenizer, prompts[0], feedbacks[3]),
        None,
        prompt_with(tokenizer, prompts[1], feedbacks[0]),
    ]
    alone = taught(tokenizer, executor, answers[:2], include_errors=True, is_placebo=True)[2]
    assert alone == [None, None]


@pytest.mark.training
def test_the_gradient_is_that_of_trls_self_distillation():
    """Of its loss on sampled tokens, with the weights that have sampled them: one answer in two has a teacher."""
    import torch
    from small_networks import CONFIGS, network
    from trl.experimental.sdpo.loss_utils import compute_sampled_token_self_distillation_loss

    from arc_refinery.training.trainer import Trainer

    model = network(CONFIGS["llama"])
    prompt, feedback, answer, cut = ([5, 6, 7], [8, 9], [10, 11, 12, 13], [14, 15])

    def logits(read: Sequence[int], mask: Sequence[int], n: int) -> Any:
        ids, is_token = torch.tensor([read]), torch.tensor([mask])
        return model(ids, attention_mask=is_token, position_ids=is_token.cumsum(1) - 1).logits[:, -n - 1 : -1]

    def log_probs(_: Any, ids: Any, mask: Any, logits_to_keep: int) -> Any:
        rows = [logits(*row, logits_to_keep) for row in zip(ids.tolist(), mask.tolist(), strict=True)]
        chosen = torch.cat(rows).log_softmax(-1).gather(2, ids[:, -logits_to_keep:].unsqueeze(2)).squeeze(2)
        return chosen, None, None

    metrics: dict[str, Any] = {"train": defaultdict(list)}
    trainer: Any = SimpleNamespace(
        _get_per_token_logps_and_entropies=log_probs,
        model=model.train(),
        processing_class=SimpleNamespace(pad_token_id=0),
        _metrics=metrics,
    )
    scored = {
        "prompt_ids": torch.tensor([prompt, [0, *prompt[1:]]]),
        "prompt_mask": torch.tensor([[1, 1, 1], [0, 1, 1]]),
        "completion_ids": torch.tensor([answer, [*cut, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }
    advantages = Trainer._advantages_of_tokens(trainer, scored, lambda _: [[*prompt, *feedback], None])
    assert advantages[1].tolist() == [0.0] * 4

    n = len(answer)
    student = logits(prompt + answer, [1] * 7, n)
    with torch.no_grad():
        teacher = logits(prompt + feedback + answer, [1] * 9, n)
    ids = torch.tensor([answer])

    def gradient(loss: Any) -> Any:
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters())[1:-1])])

    own = student.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
    ours = gradient(-(advantages[:1] * (own - own.detach()).exp()).sum())  # GRPO's loss, before it is clipped
    student = logits(prompt + answer, [1] * 7, n)
    theirs = gradient(compute_sampled_token_self_distillation_loss(student, teacher, ids, distillation_alpha=1.0).sum())
    assert ours.norm() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert metrics["train"] == {"teacher/share": [0.5], "teacher/gap": [pytest.approx(float(advantages.mean()) * 2)]}
