"""Train the embedded model from scratch on generated problems; resume from the last checkpoint when interrupted.

The loss is the sum of two cross-entropies: of the answer's tokens and, as a dense signal from which in-context learning
emerges, of the output grids in the prompt. Matrices are trained with Muon (Jordan et al. 2024), the rest with AdamW.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, TypeAlias

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Subset
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_outputs import BaseModelOutputWithPast

from arc_refinery.config import LineOrNone, PositiveFloat, PositiveInt, Seed, Share, Threads
from arc_refinery.config.base import Strict
from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, check_regular
from pretraining.corpus import CURRICULA, Batch, Corpus, TaskConversations, Writer
from pretraining.muon import Muon
from pretraining.tokenizer import build_tokenizer

logger = logging.getLogger(__name__)

Network: TypeAlias = "LlamaForCausalLM | Qwen3ForCausalLM"


class PretrainingSettings(Strict):
    """Settings of a pretraining; the shipped weights were made with the flags in rules/pretrain.smk."""

    # `refining` continues `tasks`, `reading` that, `insisting` that
    model: Literal["tasks", "refining", "reading", "insisting", "tool-use"] = "tasks"
    start: LineOrNone = ""  # folder of the weights that are continued
    start_share: Share = 0.0  # weight of the start in the written mean of weights before and after training
    seed: Seed = 0  # seeds every random choice
    n_chunks: PositiveInt = 246  # the corpus is generated and shuffled chunk by chunk
    chunk_size: PositiveInt = 512  # conversations per chunk
    batch_tokens: PositiveInt = 6144  # per optimizer step, including padding
    muon_learning_rate: PositiveFloat = 0.01  # for matrices
    adamw_learning_rate: PositiveFloat = 0.003  # for embeddings and norms
    warmup: Share = 0.01  # share of the training
    decay: Share = 0.5  # share of the training over which the learning rates fall linearly to zero
    window: PositiveInt = 2048  # context length in tokens
    n_threads: Threads = 2  # CPU threads; results depend on it
    compile: bool = True  # about 25 % faster; needs a C++ compiler
    chunks_per_checkpoint: PositiveInt = 10  # chunks between checkpoints


def pretrain(settings: PretrainingSettings, output_folder: Path, checkpoint: Path) -> None:
    """Write model, tokenizer and `pretraining.jsonl` to `output_folder`; progress is kept in the file `checkpoint`."""
    torch.set_num_threads(settings.n_threads)
    torch.manual_seed(settings.seed)
    writer, model = _writer_and_model(settings)
    decoder = torch.compile(model.model, dynamic=True) if settings.compile else model.model
    optimizers = _optimizers(model, settings)
    log = _restore(checkpoint, settings, model, optimizers)
    corpus = Corpus(writer, settings.seed, settings.n_chunks, settings.chunk_size, settings.batch_tokens)
    loader = DataLoader(Subset(corpus, range(len(log), settings.n_chunks)), batch_size=None, num_workers=1)
    progress = tqdm(loader, initial=len(log), total=settings.n_chunks, unit="chunk", mininterval=10)
    for batches in progress:
        rate_factor = _schedule(len(log) / settings.n_chunks, settings)
        metrics = _train_chunk(model, decoder, optimizers, batches, rate_factor)
        log.append({"chunk": len(log) + 1, "tokens": sum(batch.ids.numel() for batch in batches), **metrics})
        progress.set_postfix({name: f"{value:.3f}" for name, value in metrics.items()})
        if len(log) % settings.chunks_per_checkpoint == 0:
            _save(checkpoint, settings, model, optimizers, log)
    if settings.start_share:
        _average(model, _started(settings), settings.start_share)
    output_folder.mkdir(parents=True, exist_ok=True)
    writer.tokenizer.save_pretrained(output_folder)
    model.half().save_pretrained(output_folder)
    lines = [settings.model_dump() | {"parameters": model.num_parameters()}, *log]
    (output_folder / "pretraining.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    n_tokens = sum(int(entry["tokens"]) for entry in log)
    logger.info("%d parameters, trained on %d tokens", model.num_parameters(), n_tokens)


def _writer_and_model(settings: PretrainingSettings) -> tuple[Writer, Network]:
    match settings.model:
        case "tasks" | "refining" | "reading" | "insisting":
            turns = TaskConversations(build_tokenizer(settings.window), CURRICULA[settings.model])
            is_first = settings.model == "tasks"
            return turns, build_model(turns.tokenizer, settings.window) if is_first else _started(settings)
        case "tool-use":
            from pretraining.tool_conversations import ToolConversations

            questions = ToolConversations(settings.window)
            return questions, build_qwen_model(questions.tokenizer, settings.window)


def _started(settings: PretrainingSettings) -> LlamaForCausalLM:
    if not settings.start:
        raise InputError(f"--model {settings.model} continues a model's weights: name its folder with --start")
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(settings.start, dtype=torch.float32)
    return model


@torch.no_grad()
def _average(model: Network, start: Network, share: float) -> None:
    """Replace the weights by a mean with those of the start, which keeps more of what they could do.

    Source: Wortsman et al. 2022, Robust fine-tuning of zero-shot models.
    """
    for weight, before in zip(model.parameters(), start.parameters(), strict=True):
        weight.lerp_(before, share)


def build_qwen_model(tokenizer: PreTrainedTokenizerFast, window: int) -> Qwen3ForCausalLM:
    """Build Qwen3's architecture, about as small as can be while it still copies numbers."""
    shape = {"num_hidden_layers": 5, "num_key_value_heads": 2, "head_dim": 32}
    return Qwen3ForCausalLM(Qwen3Config(**shape, **_common_shape(tokenizer, window)))


def build_model(tokenizer: PreTrainedTokenizerFast, window: int) -> LlamaForCausalLM:
    shape = {"num_hidden_layers": 6, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**shape, **_common_shape(tokenizer, window)))


def _common_shape(tokenizer: PreTrainedTokenizerFast, window: int) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_attention_heads": 4,
        "max_position_embeddings": window,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _optimizers(model: Network, settings: PretrainingSettings) -> list[torch.optim.Optimizer]:
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    matrix_ids = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in matrix_ids]
    return [
        Muon(matrices, lr=settings.muon_learning_rate),
        torch.optim.AdamW(others, lr=settings.adamw_learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _schedule(progress: float, settings: PretrainingSettings) -> float:
    """Return the factor of the learning rates: linear warm-up, a plateau, linear decay to zero."""
    return max(0.02, min(1.0, (progress + 1e-3) / settings.warmup, (1.0 - progress) / settings.decay))


def _train_chunk(
    model: Network,
    decoder: Callable[..., BaseModelOutputWithPast],
    optimizers: list[torch.optim.Optimizer],
    batches: list[Batch],
    factor: float,
) -> dict[str, float]:
    """Take one optimizer step per batch; return the mean losses and the accuracy on answer tokens."""
    base_rates = [optimizer.defaults["lr"] for optimizer in optimizers]
    for optimizer, rate in zip(optimizers, base_rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
    totals = {"answer_loss": 0.0, "output_loss": 0.0, "accuracy": 0.0}
    for batch in batches:
        metrics = _train_batch(model, decoder, batch)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for name, value in metrics.items():
            totals[name] += value / len(batches)
    return totals


def _train_batch(model: Network, decoder: Callable[..., BaseModelOutputWithPast], batch: Batch) -> dict[str, float]:
    """Compute the gradients of one batch. Padding needs no mask: it is on the right, and attention is causal."""
    hidden = decoder(batch.ids, use_cache=False).last_hidden_state[:, :-1]
    targets = batch.ids[:, 1:]
    answer, outputs = batch.answer[:, 1:], batch.outputs[:, 1:]
    wanted = answer | outputs
    logits = model.lm_head(hidden[wanted])
    losses = functional.cross_entropy(logits, targets[wanted], reduction="none")
    is_answer = answer[wanted]
    answer_loss = losses[is_answer].mean()
    output_loss = losses[~is_answer].mean() if outputs.any() else torch.zeros(())
    (answer_loss + output_loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    correct = (logits.argmax(-1) == targets[wanted])[is_answer].float().mean()
    return {"answer_loss": answer_loss.item(), "output_loss": output_loss.item(), "accuracy": correct.item()}


def _save(
    checkpoint: Path,
    settings: PretrainingSettings,
    model: Network,
    optimizers: list[torch.optim.Optimizer],
    log: list[dict[str, float]],
) -> None:
    content = {
        "settings": settings.model_dump(),
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "log": log,
    }
    with atomic_write(checkpoint, RuntimeError) as unfinished:
        torch.save(content, unfinished)


def _restore(
    checkpoint: Path, settings: PretrainingSettings, model: Network, optimizers: list[torch.optim.Optimizer]
) -> list[dict[str, float]]:
    """Load model and optimizers from a checkpoint, if there is one; return its log, one entry per chunk."""
    if not checkpoint.exists():
        return []
    check_regular(checkpoint)
    try:
        saved = torch.load(checkpoint, weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{checkpoint}: cannot be read as a checkpoint ({reason}); delete it to start again") from None
    if not isinstance(saved, dict) or not {"settings", "model", "optimizers", "log"} <= saved.keys():
        raise InputError(f"{checkpoint}: is not the checkpoint of a pretraining; name another file")
    if saved["settings"] != settings.model_dump():
        raise InputError(f"{checkpoint}: was made with other settings, {saved['settings']}; delete it to start again")
    model.load_state_dict(saved["model"])
    for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    log: list[dict[str, float]] = saved["log"]
    logger.info("%s: %d of %d chunks were trained before", checkpoint, len(log), settings.n_chunks)
    return log
