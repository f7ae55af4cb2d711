# Train the embedded models from scratch: `snakemake pretrain` and `pretrain_tool_use`. Their weights are in the repository,
# so no experiment needs this.

# Parts of a pretraining, by `--model` of `python -m pretraining`: the part whose weights it continues, if any, and flags
LOWER_RATES = "--muon-learning-rate 0.006 --adamw-learning-rate 0.002"
PRETRAINING = {
    "tasks": ([], ""),
    "refining": (["tasks"], f"--n-chunks 200 --batch-tokens 3072 {LOWER_RATES}"),
    "reading": (["refining"], f"--start-share 0.5 --n-chunks 150 --batch-tokens 3072 {LOWER_RATES}"),
    "insisting": (
        ["reading"],
        "--n-chunks 12 --batch-tokens 3072 --muon-learning-rate 0.002 --adamw-learning-rate 0.0007",
    ),
    "tool-use": ([], "--n-chunks 140 --window 1024"),
}


rule pretrain_part:
    input:
        start=lambda wildcards: [f"results/pretrained/{part}" for part in PRETRAINING[wildcards.part][0]],
    output:
        directory("results/pretrained/{part}"),
    log:
        "logs/pretrained/{part}.log",
    benchmark:
        "logs/benchmarks/pretrained/{part}.tsv"
    wildcard_constraints:
        part="|".join(PRETRAINING),
    threads: 2
    resources:
        **requests(CpuNeeds(mem_mb=4000, runtime=120)),
    params:
        start=lambda wildcards, input: f"--start {input.start}" if input.start else "",
        flags=lambda wildcards: PRETRAINING[wildcards.part][1],
    message:
        "pretrain {wildcards.part}"
    shell:
        # Without these two, glibc returns memory to the kernel after each step and requests it again.
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " python -m pretraining --model {wildcards.part} {params.start} {params.flags}"
        " --output {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain:
    input:
        "results/pretrained/insisting",


rule pretrain_tool_use:
    input:
        "results/pretrained/tool-use",
