"""GPU memory of an experiment's jobs, computed from the config and the model's shape before anything runs.

    layer inputs kept by gradient checkpointing: 32 layers x 4 completions x 9,700 tokens x 4,096 x 2 bytes = 9.5 GiB

Weights, checkpoints and KV cache follow exactly from sizes. The backward pass of a layer is what PyTorch allocates for
it, on a CPU or with fake tensors (tests/unit/test_gpu_memory.py compares), on an H100 and an H200 (tests/gpu).
Estimates and assumptions are labelled; `LIMIT` leaves room for what is not counted, mainly fragmentation of PyTorch's
allocator.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from arc_refinery.config import Dtype, Experiment, Imitation, Lora, ModelConfig, Needs, PolicyGradient
from arc_refinery.config.experiment import SampledTogether
from arc_refinery.errors import InputError
from arc_refinery.models.shape import Shape, shape_of

SAMPLED_TOKENS = 32768  # prompts and completions that transformers samples together; more for one prompt, or on a GPU
MOST_SAMPLED_TOKENS = 8 * SAMPLED_TOKENS  # more rows make a step of a small network hardly cheaper per token
LIMIT = 0.85  # share of a GPU's memory
MIB, GIB = 2**20, 2**30  # HTCondor also counts a GPU's memory in MiB
WIDTH: dict[Dtype, int] = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes
NF4 = 4.127 / 8  # bytes of a 4-bit parameter with its doubly quantised scales (Dettmers et al. 2023)
GRAPHS_OF_VLLM = GIB  # assumed; kept while vLLM sleeps

# Peak bytes per token in the backward pass of one layer, reached in the MLP's last matrix: factors of intermediate
# size, hidden size and width of all query heads, by bytes per number. In 16 bits LoRA casts inputs to float32 and
# autocast casts them back. Computed as if all seven matrices had an adapter.
LAYER_BACKWARD = {2: (14, 30, 8), 4: (24, 16, 16)}
# The same for the backward pass of its attention, where a shared prompt's keys and values weigh most: factors of hidden
# size and width of all query heads.
ATTENTION_BACKWARD = {2: (18, 8), 4: (15, 16)}
HEAD_TILE = (4096, 32768)  # tokens x vocabulary: TRL 1.16 projects hidden states to logits in tiles of that size
ADAPTER = {4: 4 * 4 + 2, 2: 4 * 2}  # bytes: weights, gradients, Adam's two moments; autocast's copy of float32 ones

LONGEST_ROW = "the longest row (training.max_seq_length, model.window)"

Items = dict[str, int]  # bytes
Faults = tuple[str, ...]
CONTEXT: Items = {"CUDA context and libraries (assumed)": GIB}


@dataclass(frozen=True, slots=True)
class Count:
    """Peak GPU memory of one kind of job."""

    job: str
    load: str  # amount of work at a time
    items: Items
    gpu_mem_mb: int
    remark: str  # what is left for vLLM's KV cache
    faults: Faults  # why it does not fit, and the keys to change

    @property
    def total(self) -> int:
        return sum(self.items.values())

    @property
    def share(self) -> float:
        return self.total / (self.gpu_mem_mb * MIB)

    def __str__(self) -> str:
        rows = [f"| {item} | {n_bytes / GIB:.1f} |" for item, n_bytes in self.items.items()]
        table = "\n".join(["| item | GiB |", "|---|---:|", *rows, f"| sum | {self.total / GIB:.1f} |"])
        verdict = "\n".join(f"Does not fit: {fault}." for fault in self.faults) or "Fits."
        ends = [f"{self.summary}. {verdict}", self.remark]
        return "\n\n".join([f"## {self.job}: {self.load}", table, *filter(None, ends)])

    @property
    def summary(self) -> str:
        return f"{self.total / GIB:.1f} of {self.gpu_mem_mb * MIB / GIB:.1f} GiB, {self.share:.0%} (limit {LIMIT:.0%})"


def memory_page(experiment: Experiment) -> str:
    """Return a table for each kind of job that asks for a GPU; raise `InputError` if a model's sizes are unknown."""
    notes = [
        f"Not counted: resources.{kind} asks for no GPU, or has no gpu_mem_mb."
        for kind in ("sample", "train")
        if not _is_counted(getattr(experiment.resources, kind))
    ]
    if experiment.training and not experiment.trained_row:
        notes.append(f"Not counted: the kind {experiment.kind} does not say how long the rows of its training are.")
    return "\n\n".join([f"# {experiment.experiment}: GPU memory", *map(str, counts(experiment)), *notes])


def memory_warnings(experiment: Experiment, origin: str) -> list[str]:
    """Return a line for each kind of job that does not fit its GPU; none if a model's sizes are unknown."""
    try:
        jobs = counts(experiment)
    except InputError:
        return []
    return [
        f"{origin}: GPU memory of {count.job} ({count.load}) is {count.summary}; {'; '.join(count.faults)}. "
        f"For a breakdown: arc-refinery doctor memory --configfile {origin}"
        for count in jobs
        if count.faults
    ]


def counts(experiment: Experiment) -> list[Count]:
    """Return a count for each kind of job that asks for a GPU; runs of a sweep with equal memory share one."""
    resources = experiment.resources
    jobs = list(_samplings(experiment)) if _is_counted(resources.sample) else []
    if _is_counted(resources.train):
        for count in (training_count(step, resources.train.gpu_mem_mb) for step in steps(experiment)):
            if jobs and jobs[-1].items == count.items:
                jobs[-1] = replace(jobs[-1], job=f"{jobs[-1].job}, {count.job}")
            else:
                jobs.append(count)
    return jobs


def _is_counted(needs: Needs) -> bool:
    return needs.gpus > 0 and needs.gpu_mem_mb > 0


def _samplings(experiment: Experiment) -> Iterator[Count]:
    gpu_mem_mb = experiment.resources.sample.gpu_mem_mb
    if (model := experiment.sampler) is None:
        return
    match model.backend:
        case "vllm":
            yield _vllm_sampling(model, gpu_mem_mb)
        case "transformers":
            yield _transformers_sampling(experiment, model, gpu_mem_mb)
        case "endpoint" | "answers":
            return
        case _:
            assert_never(model.backend)


def _transformers_sampling(experiment: Experiment, model: ModelConfig, gpu_mem_mb: int) -> Count:
    shape, width = shape_of(model.path), WIDTH[model.dtype]
    n_rows, n_tokens, load = _together(experiment.sampled_together, shape, model.window)
    items = weight_items(shape, width, model.use_4bit_quantization)
    items |= _generation(shape, width, n_rows, n_tokens, n_tokens) | CONTEXT
    if not experiment.sampled_together.n_tokens and shape.attends_to_all:
        items["keys of a turn, kept for the next one"] = n_tokens * shape.kv_bytes_per_token(width)
    faults = () if _fits(items, gpu_mem_mb) else ("lower model.window or raise resources.sample.gpu_mem_mb",)
    return Count("sample", load, items, gpu_mem_mb, "", faults)


def _together(together: SampledTogether, shape: Shape, window: int) -> tuple[int, int, str]:
    """Return the completions that transformers samples together, their tokens with their prompts', and a text."""
    n_rows, longest = together
    if longest and shape.attends_to_all:
        n_tokens = max(window + (n_rows - 1) * longest, SAMPLED_TOKENS)  # a prompt and its completions, or several
        return n_tokens // longest, n_tokens, f"{n_tokens:,} tokens of prompts and completions at a time"
    return n_rows, n_rows * window, f"{n_rows} completions of up to {window:,} tokens at a time"


def _vllm_sampling(model: ModelConfig, gpu_mem_mb: int) -> Count:
    """Count the minimum that vLLM needs on each GPU of the model. It fills the rest of its share with KV cache."""
    shape, width, n_gpus = shape_of(model.path), WIDTH[model.dtype], model.tensor_parallel_size
    # vLLM 0.31's defaults for offline sampling: on an H100, on smaller GPUs
    n_batched, n_sequences = (16384, 1024) if gpu_mem_mb * MIB >= 70 * GIB else (8192, 256)
    needed = {name: n_bytes // n_gpus for name, n_bytes in weight_items(shape, width, in_4bit=False).items()}
    needed |= _engine(shape, width, n_batched, n_sequences)
    per_token = shape.kv_bytes_per_token(width) // n_gpus
    advice = "lower model.window or raise resources.sample.gpu_mem_mb"
    if model.kv_cache_gb is None:
        room = int(model.gpu_memory_utilization * gpu_mem_mb * MIB) - sum(needed.values())
        name, share = f"KV cache of one window ({model.window:,} tokens)", "gpu_memory_utilization"
        cache = model.window * per_token
    else:
        room = cache = int(model.kv_cache_gb * GIB)
        name, share = "KV cache", "kv_cache_gb"
    items = needed | {name: cache} | CONTEXT
    remark, starved = _kv_cache(room, per_token, model.window, f"{advice} or model.{share}")
    faults = starved if _fits(items, gpu_mem_mb) else (advice, *starved)
    load = f"the least for a window of {model.window:,} tokens"
    return Count("sample", load, items, gpu_mem_mb, remark, faults)


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of a training run."""

    job: str
    key: str  # its section in the config
    settings: Imitation | PolicyGradient
    lora: Lora
    model: ModelConfig
    shape: Shape
    n_rows: int  # completions, or demonstrations
    length: int  # tokens of the longest row
    n_scored: int  # tokens of the longest row that are scored

    @property
    def passes(self) -> int:
        return self.settings.gradient_accumulation_steps

    @property
    def n_processes(self) -> int:
        return self.settings.n_training_processes if isinstance(self.settings, PolicyGradient) else 1

    def prompts_of(self, n_rows: int) -> int:
        """Return the number of prompts that a pass of that many rows reads; 0: one per row, and rows are padded."""
        if not self.shape.attends_to_all:
            return 0
        match self.settings:
            case PolicyGradient(shared_prefix="auto", trains_with_unsloth=False) as grpo:
                ends = range(n_rows, self.n_rows + 1, n_rows)
                return max(-(-end // grpo.num_generations) - (end - n_rows) // grpo.num_generations for end in ends)
            case Imitation() | PolicyGradient(trains_with_unsloth=True):  # Unsloth: UNSLOTH_GRPO_SEQ_PACKING
                return n_rows  # side by side
            case PolicyGradient():
                return 0


def steps(experiment: Experiment) -> Iterator[Step]:
    model, training, row = experiment.model, experiment.training, experiment.trained_row
    if not training or not row:
        return
    if training.sft:
        n_rows = training.sft.rows_per_step
        yield Step("sft", "training.sft", training.sft, training.lora, model, shape_of(model.path), n_rows, *row)
    for name, run in experiment.runs.items():
        grpo, network = run.grpo, model.model_copy(update={"dtype": run.dtype or model.dtype})
        n_rows, shape = grpo.num_generations * grpo.prompts_per_step, shape_of(model.path)
        yield Step(f"train {name}", "training.grpo", grpo, run.lora, network, shape, n_rows, *row)


def training_count(step: Step, gpu_mem_mb: int) -> Count:
    items, remark, starved = _held(step, step.passes, gpu_mem_mb)
    advice = f"lower {LONGEST_ROW} or raise resources.train.gpu_mem_mb"
    if fewest := _fewest_passes(step, gpu_mem_mb):
        advice = f"set {step.key}.gradient_accumulation_steps to {fewest} (now {step.passes}), or {advice}"
    else:
        advice = "".join(f"{way}, or " for way in _ways_to_fit(step, gpu_mem_mb)) + advice
    faults = starved if _fits(items, gpu_mem_mb) else (advice, *starved)
    what = "completions" if isinstance(step.settings, PolicyGradient) else "rows"
    load = f"{step.n_rows // step.passes} {what} of up to {step.length:,} tokens per pass"
    return Count(step.job, load, items, gpu_mem_mb, remark, faults)


def _fewest_passes(step: Step, gpu_mem_mb: int) -> int | None:
    """Return the number of passes per step that fit, at least as many as the config says; None if none do."""
    for passes in range(step.passes, step.n_rows + 1, step.n_processes):
        if step.n_rows % passes == 0:
            items, _, starved = _held(step, passes, gpu_mem_mb)
            if _fits(items, gpu_mem_mb) and not starved:
                return passes
    return None


def _ways_to_fit(step: Step, gpu_mem_mb: int) -> Iterator[str]:
    """Yield the keys of a config with which a step fits that no number of passes makes fit."""
    changes: list[tuple[str, Step]] = []
    if isinstance(step.settings, PolicyGradient) and step.settings.sampler == "vllm-colocate":
        key, grpo = step.key, step.settings
        has_cache = grpo.kv_cache_gb is not None  # and so vLLM takes no share
        if grpo.sleep_mode:
            yield f"lower {key}.{'kv_cache_gb' if has_cache else 'gpu_memory_utilization'}"
        elif not grpo.trains_with_unsloth:
            utilization = max(grpo.gpu_memory_utilization, 0.6)  # asleep, vLLM needs no room beside the passes
            asleep = grpo.model_copy(update={"sleep_mode": True, "gpu_memory_utilization": utilization})
            text = f"set {key}.sleep_mode to true"
            text += "" if has_cache else f" and {key}.gpu_memory_utilization to {utilization}"
            changes.append((text, replace(step, settings=asleep)))
        plain = grpo.model_copy(update={"sampler": "transformers", "sleep_mode": False, "kv_cache_gb": None})
        text = f"set {key}.sampler to transformers"
        text += f" and {key}.sleep_mode to false" if grpo.sleep_mode else ""
        text += f" and {key}.kv_cache_gb to null" if has_cache else ""
        changes.append((text, replace(step, settings=plain)))
    if not step.lora.load_in_4bit:
        in_4bit = step.lora.model_copy(update={"load_in_4bit": True})
        changes.append(("set training.lora.load_in_4bit to true", replace(step, lora=in_4bit)))
    for text, changed in changes:
        if passes := _fewest_passes(changed, gpu_mem_mb):
            more = f" with {step.key}.gradient_accumulation_steps {passes}" if passes != step.passes else ""
            yield f"{text}{more}"


def _held(step: Step, passes: int, gpu_mem_mb: int) -> tuple[Items, str, Faults]:
    """Return what a step holds in so many passes, what is left for vLLM's KV cache, and why that is too little."""
    shape, width = step.shape, WIDTH[step.model.dtype]
    frozen = weight_items(shape, width, step.lora.load_in_4bit)
    n_adapter = shape.n_in_adapter(step.lora.lora_r, step.lora.target_modules)
    frozen["adapter: weights, gradients, optimizer"] = n_adapter * ADAPTER[2 if step.lora.load_in_4bit else 4]
    sampling: Items = {}  # never at the same time as a pass
    remark, starved = "", Faults()
    grpo = step.settings
    if isinstance(grpo, PolicyGradient):
        match grpo.sampler:
            case "transformers":
                n_rows = step.n_rows // step.n_processes
                n_prompts, n_steps = step.prompts_of(n_rows) or n_rows, grpo.steps_per_generation
                n_read = n_steps * n_prompts * (step.length - step.n_scored)
                n_tokens = n_read + n_steps * n_rows * step.n_scored
                answers_once = grpo.answers_once  # else later turns are read, too
                sampling = _generation(shape, width, n_steps * n_rows, n_tokens, n_read if answers_once else n_tokens)
            case "vllm-colocate":
                n_sampled = step.n_rows // step.n_processes * grpo.steps_per_generation
                needed = shape.n_parameters * width + sum(_engine(shape, width, 4096, n_sampled).values())
                if grpo.kv_cache_gb is None:
                    share = int(grpo.gpu_memory_utilization * gpu_mem_mb * MIB)
                    name, size = f"vLLM's share ({grpo.gpu_memory_utilization:g})", "gpu_memory_utilization"
                else:
                    share = needed + int(grpo.kv_cache_gb * GIB)
                    name, size = "vLLM", "kv_cache_gb"
                if grpo.sleep_mode:
                    frozen["vLLM's CUDA graphs, also while it sleeps (assumed)"] = GRAPHS_OF_VLLM
                    sampling[f"{name}, without these"] = share - GRAPHS_OF_VLLM
                else:
                    frozen[name] = share
                per_token = shape.kv_bytes_per_token(width)
                advice = f"raise {step.key}.{size} or lower {LONGEST_ROW}"
                remark, starved = _kv_cache(share - needed, per_token, step.length, advice)
    n_rows = step.n_rows // passes
    held = training_pass(shape, width, n_rows, step.length, step.n_scored, step.prompts_of(n_rows))
    return frozen | max(held, sampling, key=lambda part: sum(part.values())) | CONTEXT, remark, starved


def training_pass(shape: Shape, width: int, n_rows: int, length: int, n_scored: int, n_prompts: int = 0) -> Items:
    """Count the forward and backward pass of `n_rows` rows of `length` tokens, with gradient checkpointing.

    `n_prompts` prompts are read once for all rows; 0: each row reads its own, padded. The peak is either the projection
    of the last `n_scored` tokens to logits and back, or the last layer.
    """
    n_read = n_prompts or n_rows
    tokens, hidden = n_read * (length - n_scored) + n_rows * n_scored, shape.hidden_size
    inner_factor, hidden_factor, query_factor = LAYER_BACKWARD[width]
    per_token = inner_factor * shape.intermediate_size + hidden_factor * hidden + query_factor * shape.queries
    if shape.has_head_norms:
        per_token += 4 * (shape.queries + shape.keys)  # in float32
    layer = tokens * per_token
    # each completion has its prompt's keys and values, in the attention's backward pass also their gradients: those of
    # one prompt at a time, so this is too much for several
    copies = 2 * n_rows * length * shape.queries * width if n_prompts else 0
    per_hidden, per_query = ATTENTION_BACKWARD[width]
    attention = tokens * (per_hidden * hidden + per_query * shape.queries)
    layer = max(layer + copies, attention + 2 * copies)
    scored = n_rows * n_scored
    tile = min(scored, HEAD_TILE[0]) * HEAD_TILE[1] * width
    head = tile + (tokens + scored) * hidden * (4 + width)  # with float32 copies or gradients
    held = {
        "layer inputs that gradient checkpointing keeps": shape.num_hidden_layers * tokens * hidden * width,
        "backward pass of the logits" if head > layer else "backward pass of one layer": max(head, layer),
    }
    if not n_prompts:
        held["attention mask, because rows are padded"] = n_rows * length**2 * (1 + width)  # bool, and as a bias
    return held


def forward_pass(shape: Shape, width: int, tokens: int) -> int:
    """Return the bytes of one layer without gradients: gate, up and their product, with LoRA's casts of them."""
    return tokens * width * (5 * shape.intermediate_size + 3 * shape.hidden_size)


def weight_items(shape: Shape, width: int, in_4bit: bool) -> Items:
    """Return the bytes of a model's weights, whose numbers have `width` bytes, with what unpacking 4 bits takes."""
    if not in_4bit:
        return {f"weights ({shape.n_parameters / 1e9:.2f}e9 x {width} bytes)": shape.n_parameters * width}
    packed = shape.n_in_matrices
    unpacked = max(inputs * outputs for inputs, outputs in shape.matrices.values())  # one matrix at a time
    n_bytes = int(packed * NF4) + (shape.n_parameters - packed + unpacked) * width
    return {f"weights ({packed / 1e9:.2f}e9 x 4 bits, others x {width} bytes)": n_bytes}


def _generation(shape: Shape, width: int, n_rows: int, n_tokens: int, n_read: int) -> Items:
    """Count sampling with transformers: `n_rows` completions, with their prompts `n_tokens`; `n_read` at once."""
    return {
        f"KV cache of {n_tokens:,} tokens": n_tokens * shape.kv_bytes_per_token(width),
        "reading prompts": forward_pass(shape, width, n_read) + _choosing(shape, n_rows),
    }


def sampled_tokens(shape: Shape, width: int, max_output_tokens: int, free: int) -> int:
    """Return the tokens of prompts and completions that transformers samples together on a GPU with `free` bytes.

    Half of these bytes hold keys and values, twice while rows that have ended are dropped, and what the choice of each
    row's next token needs.
    """
    per_token = 2 * shape.kv_bytes_per_token(width) + _choosing(shape, 1) // max_output_tokens
    return min(max(free // 2 // per_token, SAMPLED_TOKENS), MOST_SAMPLED_TOKENS)


def _engine(shape: Shape, width: int, n_batched: int, n_sequences: int) -> Items:
    """Estimate vLLM's memory other than weights and KV cache."""
    n_bytes = forward_pass(shape, width, n_batched) + _choosing(shape, n_sequences) + GRAPHS_OF_VLLM
    return {"vLLM's activations, logits, CUDA graphs (estimated)": n_bytes}


def _choosing(shape: Shape, n_rows: int) -> int:
    """Return the bytes for choosing each row's next token: logits, sorted logits, and their indices (8 bytes)."""
    return n_rows * shape.vocab_size * (4 + 4 + 8)


def _fits(items: Items, gpu_mem_mb: int) -> bool:
    return sum(items.values()) <= LIMIT * gpu_mem_mb * MIB


def _kv_cache(room: int, per_token: int, window: int, advice: str) -> tuple[str, Faults]:
    """Describe the KV cache that fits `room` bytes; the second value is the fault if it is less than a window."""
    n_tokens = max(room, 0) // per_token
    text = (
        f"vLLM has {max(room, 0) / GIB:.1f} GiB for its KV cache: {n_tokens:,} tokens, {n_tokens / window:.1f} windows"
    )
    return f"{text} of {window:,}.", (f"{text}, and needs one; {advice}",) if n_tokens < window else ()
