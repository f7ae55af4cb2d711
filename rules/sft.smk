# Pair first-turn attempts with correct answers, and fine-tune on them.
# Checkpoints are outside the rule's outputs, where Snakemake deletes nothing, so an evicted job resumes.


rule demonstrations:
    input:
        tasks="<results>/tasks/{tasks}.parquet",
        prompts="<results>/{tasks}/turn1/prompts.parquet",
        attempts=first_turn_files("attempts"),
        verdicts=first_turn_files("verdicts"),
        template=template_files(template()),
        model=model_files(experiment.model),
    output:
        "<results>/{tasks}/training/demonstrations.parquet",
    log:
        "<logs>/{tasks}/training/demonstrations.log",
    benchmark:
        "<benchmarks>/{tasks}/training/demonstrations.tsv"
    wildcard_constraints:
        tasks="|".join(experiment.training_tasks),
    priority: 10  # training waits for it
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags(demonstrations_settings()),
        folder=subpath(input.prompts, parent=True),
        n_shards=shard_count,
    shell:
        "arc-refinery demonstrations --folder {params.folder} --n-shards {params.n_shards} --tasks-path {input.tasks}"
        " {params.flags} --n-jobs {threads} --output {output} 2> {log}"


rule sft:
    input:
        demonstrations=demonstration_files(),
        model=model_files(experiment.model),
    output:
        directory("<results>/adapters/{sft}"),
    log:
        log="<logs>/adapters/{sft}.log",
        measured="<logs>/adapters/{sft}.measured.jsonl",
    benchmark:
        "<benchmarks>/adapters/{sft}.tsv"
    wildcard_constraints:
        sft="|".join(map(re.escape, experiment.sft_adapters)),
    priority: 10  # all other training waits for it
    threads: cpus("train")
    resources:
        **model_needs("train"),
        tuning=sft_tuning(),
    params:
        flags=sft_flags,
    shell:
        "{resources.venv_on_path}arc-refinery sft --dataset-path {input.demonstrations} {params.flags} {resources.tuning}"
        " --checkpoints {output}.checkpoints --tensorboard {log.log}.tensorboard --measurements {log.measured}"
        " --output-dir {output} > {log.log} 2>&1"
