# Turn incorrect attempts on the evaluation sets into next-turn prompts.
# The command gets the folder and the number of shards: the paths of many shards would not fit on a command line.


rule refining_prompts:
    input:
        prompts=parent_prompts,
        attempts=parent_files("attempts"),
        verdicts=parent_files("verdicts"),
        template=template_files(template()),
        model=branch_model_files,
    output:
        "<results>/{tasks}/{branch}/prompts.parquet",
    log:
        "<logs>/{tasks}/{branch}/prompts.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/prompts.tsv"
    wildcard_constraints:
        branch="[a-z0-9.-]+-turn[0-9]+",
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=next_turn_flags,
        folder=subpath(input.prompts, parent=True),
        n_shards=shard_count,
    shell:
        "arc-refinery refine --folder {params.folder} --n-shards {params.n_shards}"
        " --branch {wildcards.branch} {params.flags} --output {output} 2> {log}"
