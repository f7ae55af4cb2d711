"""Train the embedded model from scratch on generated problems; resume from the last checkpoint when interrupted.

Two losses are added: cross-entropy of the answer's tokens and, as the dense signal that in-context learning grows from,
of the output grids in the prompt. Matrices are trained with Muon (Jordan et al. 2024), the rest with AdamW.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Subset
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutputWithPast

from arc_refinery.pretraining.corpus import Batch, Corpus
from arc_refinery.pretraining.muon import Muon
from arc_refinery.pretraining.tokenizer import build_tokenizer


@dataclass(frozen=True, slots=True)
class PretrainingSettings:
    seed: int = 0
    n_chunks: int = 246
    chunk_size: int = 512  # conversations
    batch_tokens: int = 6144
    muon_learning_rate: float = 0.01
    adamw_learning_rate: float = 0.003
    warmup: float = 0.01  # share of the training
    decay: float = 0.5  # share of the training over which the learning rate falls linearly to zero
    window: int = 2048
    n_threads: int = 2
    compile: bool = True  # about a quarter faster; needs a C++ compiler


CHUNKS_PER_CHECKPOINT = 10


def pretrain(settings: PretrainingSettings, output_folder: Path, checkpoint: Path) -> None:
    """Write model, tokenizer and `pretraining.json` to `output_folder`; progress lives in the file `checkpoint`."""
    torch.set_num_threads(settings.n_threads)
    torch.manual_seed(settings.seed)
    tokenizer = build_tokenizer(settings.window)
    model = build_model(tokenizer, settings.window)
    decoder = torch.compile(model.model, dynamic=True) if settings.compile else model.model
    optimizers = _optimizers(model, settings)
    state = {"chunk": 0, "tokens": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    log: list[dict[str, float]] = []
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["settings"] != asdict(settings):
            raise ValueError(
                f"{checkpoint}: was made with other settings ({saved['settings']}); delete it to start anew"
            )
        model.load_state_dict(saved["model"])
        for optimizer, optimizer_state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        state, log = saved["state"], saved["log"]
    corpus = Corpus(tokenizer, settings.seed, settings.n_chunks, settings.chunk_size, settings.batch_tokens)
    remaining = Subset(corpus, range(int(state["chunk"]), settings.n_chunks))
    loader = DataLoader(remaining, batch_size=None, num_workers=1, prefetch_factor=4)
    progress = tqdm(loader, initial=int(state["chunk"]), total=settings.n_chunks, unit="chunk", mininterval=10)
    for batches in progress:
        started, cpu_started = time.perf_counter(), time.process_time()
        figures = _train_chunk(
            model, decoder, optimizers, batches, _schedule(int(state["chunk"]) / settings.n_chunks, settings)
        )
        state["chunk"] += 1
        state["tokens"] += sum(batch.ids.numel() for batch in batches)
        state["seconds"] += time.perf_counter() - started
        state["cpu_seconds"] += time.process_time() - cpu_started
        log.append({**state, **figures})
        progress.set_postfix({name: f"{value:.3f}" for name, value in figures.items()})
        if state["chunk"] % CHUNKS_PER_CHECKPOINT == 0:
            saved = {"settings": asdict(settings), "model": model.state_dict(), "state": state, "log": log}
            _save_atomically({**saved, "optimizers": [optimizer.state_dict() for optimizer in optimizers]}, checkpoint)
    output_folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(output_folder)
    model.half().save_pretrained(output_folder)
    report = {"settings": asdict(settings), "parameters": model.num_parameters(), "log": log[-1:], **state}
    (output_folder / "pretraining.json").write_text(json.dumps(report, indent=1) + "\n")


def build_model(tokenizer: PreTrainedTokenizerFast, window: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=window,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def _optimizers(model: LlamaForCausalLM, settings: PretrainingSettings) -> list[torch.optim.Optimizer]:
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    known = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in known]
    return [
        Muon(matrices, lr=settings.muon_learning_rate),
        torch.optim.AdamW(others, lr=settings.adamw_learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _schedule(progress: float, settings: PretrainingSettings) -> float:
    """Factor of the learning rates: linear warm-up, a plateau, linear decay to zero."""
    return max(0.02, min(1.0, (progress + 1e-3) / settings.warmup, (1.0 - progress) / settings.decay))


def _train_chunk(
    model: LlamaForCausalLM,
    decoder: Callable[..., BaseModelOutputWithPast],
    optimizers: list[torch.optim.Optimizer],
    batches: list[Batch],
    factor: float,
) -> dict[str, float]:
    """One optimizer step a batch; the mean losses and the share of answer tokens that the model ranks first."""
    base_rates = [optimizer.defaults["lr"] for optimizer in optimizers]
    for optimizer, rate in zip(optimizers, base_rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
    totals = {"answer_loss": 0.0, "output_loss": 0.0, "accuracy": 0.0}
    for batch in batches:
        figures = _train_batch(model, decoder, batch)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for name, value in figures.items():
            totals[name] += value / len(batches)
    return totals


def _train_batch(
    model: LlamaForCausalLM, decoder: Callable[..., BaseModelOutputWithPast], batch: Batch
) -> dict[str, float]:
    """Gradients of one batch. No attention mask: padding is on the right, where causal attention never looks back to."""
    hidden = decoder(batch.ids, use_cache=False).last_hidden_state[:, :-1]
    targets = batch.ids[:, 1:]
    answer, outputs = batch.answer[:, 1:], batch.outputs[:, 1:]
    wanted = answer | outputs
    logits = model.lm_head(hidden[wanted])
    losses = functional.cross_entropy(logits, targets[wanted], reduction="none")
    of_answer = answer[wanted]
    answer_loss, output_loss = losses[of_answer].mean(), losses[~of_answer].mean()
    (answer_loss + output_loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    correct = (logits.argmax(-1) == targets[wanted])[of_answer].float().mean()
    return {"answer_loss": answer_loss.item(), "output_loss": output_loss.item(), "accuracy": correct.item()}


def _save_atomically(content: dict[str, object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(content, temporary)
    os.replace(temporary, path)
