"""One step of GRPO from top to bottom: `.venv/bin/python docs/one_step.py` prints it within seconds on one core.

A model sees a task and writes several programs. The sandbox executes them, a reward grades them, and one update of a
LoRA adapter makes the better ones more likely. Everything except the loss is the package's own code. In an experiment
TRL computes the loss, on many prompts per step: workflow/arc_refinery/training/trainer.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.config import Lora, ModelConfig
from arc_refinery.domains.arc.config.rewards import arc_v1
from arc_refinery.domains.arc.domain import first_turn_in
from arc_refinery.domains.domain import load_domain
from arc_refinery.domains.first_turn import rendered
from arc_refinery.domains.prompts import Renderer
from arc_refinery.models.tokenizers import load_tokenizer
from arc_refinery.refining.rollout import TrainingPrompt
from arc_refinery.sampling.backends import Decoding, Request, open_sampler
from arc_refinery.sandbox import Executor, Limits
from arc_refinery.training.adapters import open_network

MODEL = ModelConfig(path=str(Path(__file__).parents[1] / "workflow/models/tiny"), window=1024)
N_SAMPLES = 16  # the group: a sample's advantage compares it with the others on the same prompt
LEARNING_RATE = 1e-3
EPSILON = 0.2  # clipping range of the probability ratio


def main() -> None:
    torch.set_num_threads(1)

    # A task of ARC: grids of colors 0 to 9, and one rule, here a half turn, that leads from each input to its output.
    grids = [np.array(rows, np.uint8) for rows in ([[1, 2, 0], [0, 3, 0]], [[4, 0], [5, 6]], [[7, 0, 8]])]
    pairs = tuple(Pair(grid, np.rot90(grid, 2)) for grid in grids)
    task = Task("half-turn", train=pairs[:2], test=pairs[2:], origin="docs")

    # A domain knows how its tasks are shown and answers graded. `compact` is the wording that the embedded model knows.
    # It shows the train pairs alone; the test pairs tell whether a program has the rule. The chat template puts the
    # text into a user's message.
    domain, renderer = load_domain("arc"), Renderer(MODEL.path)
    wording = domain.wording("compact", form="given")
    shown = first_turn_in(task, IDENTITY, (0, 1), wording)
    prompt = rendered(domain.prompt_class, shown, "half-turn/0", task.task_id, N_SAMPLES, renderer)
    print(f"The prompt, {prompt.n_tokens} tokens:\n\n{prompt.text}\n")

    # Samplers take and return token ids. Training uses the sampled ids, because a text may have been sampled as other
    # tokens than the tokenizer would make of it.
    tokenizer = load_tokenizer(MODEL.path)
    prompt_ids = tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
    sampler = open_sampler(MODEL, None, Decoding(temperature=1.0, top_p=1.0, max_output_tokens=24), tokenizer)
    (sampled,) = sampler.sample([Request("half-turn/0", "half-turn", prompt_ids, N_SAMPLES, seed=0)])
    samples = [sample.ids for sample in sampled["half-turn/0"]]
    texts = tokenizer.batch_decode(samples, skip_special_tokens=True)

    # Programs are untrusted: each one runs in a process that reaches neither files nor the network, within limits. A
    # program that fails is a result, too.
    asked = TrainingPrompt.of(domain, prompt)
    with Executor(1, Limits(cpu_seconds=1.0, wall_seconds=10.0, memory_mb=512)) as executor:
        grades = list(domain.grade([asked.answer(text) for text in texts], (executor,)))

    # In a second turn, the conversation continues with such a program and this feedback, and the model corrects it. The
    # rest of the step is the same.
    wrong = next(grade for grade in grades if grade.is_valid and not grade.is_solved)
    feedback = domain.feedback(prompt, wrong, wording)
    print(f"Feedback on a wrong program:\n\n{wrong.code}\n{feedback}\n")

    # The reward `arc-v1`: 1 for valid grids, 8 times the share of correct grids, and the pixel score.
    rewards = torch.tensor([arc_v1(grade) for grade in grades])

    # The group is the baseline: a sample is good if it is better than the others. Advantages sum to 0, and where all
    # rewards are equal they are 0, so nothing is learned. (`scale_rewards: group`)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)

    # A fresh adapter changes nothing, so these log-probabilities are those of the model that sampled.
    network = open_network(MODEL, Lora(lora_r=16, lora_alpha=32), start=None, seed=0)
    with torch.no_grad():
        before, mask = log_probs(network, prompt_ids, samples)

    # One update. The loss is the advantage times the ratio of each token's probability to that before the update,
    # clipped so that a step does not go too far; the mean of each completion's tokens, then of completions. In a first
    # update all ratios are 1. The KL term (`beta`) is left out: it compares with the model before training, so it is 0.
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], LEARNING_RATE)
    current, _ = log_probs(network, prompt_ids, samples)
    ratio = (current - before).exp()
    gain = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages[:, None])
    loss = -((gain * mask).sum(1) / mask.sum(1)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()

    with torch.no_grad():
        after, _ = log_probs(network, prompt_ids, samples)
    print("The samples; log-probabilities before and after one update:\n")
    print("status   correct  reward  advantage  before   after  program")
    for row in sorted(range(N_SAMPLES), key=lambda row: -rewards[row]):
        grade = grades[row]
        body = " ; ".join(line.strip() for line in texts[row].splitlines()[4:-2])
        print(
            f"{grade.status:<8} {grade.correct_grids:7.0%} {rewards[row]:7.2f} {advantages[row]:+10.2f} "
            f"{before[row].sum():7.2f} {after[row].sum():7.2f}  {body}"
        )


def log_probs(network: Any, prompt: Sequence[int], completions: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each completion's tokens, and a mask: 0 for padding. (completions, tokens)"""
    rows = pad_sequence([torch.tensor([*prompt, *ids]) for ids in completions], batch_first=True)
    n_tokens = torch.tensor([len(ids) for ids in completions])
    mask = torch.arange(int(n_tokens.max())) < n_tokens[:, None]
    # Position i predicts token i + 1. Padding is on the right, so no token attends to it.
    logits = network(input_ids=rows).logits[:, len(prompt) - 1 : -1]
    values = logits.log_softmax(-1).gather(2, rows[:, len(prompt) :, None]).squeeze(2)
    return values * mask, mask


if __name__ == "__main__":
    main()
