"""Environment variables of vLLM. They must be set before it is imported; TRL imports it wherever it is installed."""

import os


def set_vllm_variables() -> None:
    """Set the variables that the user has not set."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # else it sends usage statistics
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # forking fails once CUDA is initialised
    # FlashInfer's sampler is compiled when the engine starts, which ends where there is no nvcc (vLLM issue 49497). Our
    # requests have seeds or want log-probabilities after top-p, and vLLM takes its own sampler for those anyway.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
