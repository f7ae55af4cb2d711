# Train the embedded models from scratch: `snakemake pretrain` and `snakemake pretrain_tool_use`. Their weights are in the
# repository, so no experiment needs this.


rule pretrain_first_turns:
    output:
        directory("results/pretrained-first-turns"),
    log:
        "logs/pretrain-first-turns.log",
    benchmark:
        "logs/benchmarks/pretrain-first-turns.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        # Without these two, glibc returns memory to the kernel after each step and requests it again.
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain_refining:
    input:
        rules.pretrain_first_turns.output,
    output:
        directory("results/pretrained-refining"),
    log:
        "logs/pretrain-refining.log",
    benchmark:
        "logs/benchmarks/pretrain-refining.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --model refining --start {input} --n-chunks 200 --batch-tokens 3072"
        " --muon-learning-rate 0.006 --adamw-learning-rate 0.002"
        " --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain_reading:
    input:
        rules.pretrain_refining.output,
    output:
        directory("results/pretrained-reading"),
    log:
        "logs/pretrain-reading.log",
    benchmark:
        "logs/benchmarks/pretrain-reading.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --model reading --start {input} --start-share 0.5 --n-chunks 150 --batch-tokens 3072"
        " --muon-learning-rate 0.006 --adamw-learning-rate 0.002"
        " --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain:
    input:
        rules.pretrain_reading.output,
    output:
        directory("results/pretrained"),
    log:
        "logs/pretrain.log",
    benchmark:
        "logs/benchmarks/pretrain.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --model insisting --start {input} --n-chunks 12 --batch-tokens 3072"
        " --muon-learning-rate 0.002 --adamw-learning-rate 0.0007"
        " --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain_tool_use:
    output:
        directory("results/pretrained-tool-use"),
    log:
        "logs/pretrain-tool-use.log",
    benchmark:
        "logs/benchmarks/pretrain-tool-use.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --model tool-use --n-chunks 140 --window 1024"
        " --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"


rule pretrain_search:
    input:
        rules.pretrain_tool_use.output,
    output:
        directory("results/pretrained-search"),
    log:
        "logs/pretrain-search.log",
    benchmark:
        "logs/benchmarks/pretrain-search.tsv"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery dev pretrain --model search --start {input} --n-chunks 40 --window 1024"
        " --muon-learning-rate 0.006 --adamw-learning-rate 0.002"
        " --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"
