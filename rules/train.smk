# Write training prompts, and train a LoRA adapter with GRPO, once per run of a sweep.
# Checkpoints are outside the rule's outputs, where Snakemake deletes nothing, so an evicted job resumes.


if experiment.training.prompts == "first-turn":

    rule training_prompts:
        input:
            tasks="<results>/tasks/{tasks}.parquet",
            template=template_files(template()),
            model=model_files(experiment.model),
        output:
            "<results>/{tasks}/training/prompts.parquet",
        log:
            "<logs>/{tasks}/training/prompts.log",
        benchmark:
            "<benchmarks>/{tasks}/training/prompts.tsv"
        wildcard_constraints:
            tasks="|".join(experiment.training_tasks),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=flags(first_training_prompts_settings()),
        shell:
            "arc-refinery first-prompts --tasks-path {input.tasks} {params.flags} --output {output} 2> {log}"

else:

    rule training_prompts:
        input:
            prompts="<results>/{tasks}/turn1/prompts.parquet",
            attempts=first_turn_files("attempts"),
            verdicts=first_turn_files("verdicts"),
            template=template_files(template()),
            model=model_files(experiment.model),
        output:
            "<results>/{tasks}/training/prompts.parquet",
        log:
            "<logs>/{tasks}/training/prompts.log",
        benchmark:
            "<benchmarks>/{tasks}/training/prompts.tsv"
        wildcard_constraints:
            tasks="|".join(experiment.training_tasks),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=flags(next_training_prompts_settings()),
            folder=subpath(input.prompts, parent=True),
            n_shards=shard_count,
        shell:
            "arc-refinery refine --folder {params.folder} --n-shards {params.n_shards}"
            " {params.flags} --output {output} 2> {log}"


rule train:
    input:
        prompts=training_prompts(),
        adapter=adapter_to_go_on_from,
        template=template_files(template()),
        model=model_files(experiment.model),
    output:
        directory("<results>/adapters/{run}"),
    log:
        log="<logs>/adapters/{run}.log",
        measured="<logs>/adapters/{run}.measured.jsonl",
    benchmark:
        "<benchmarks>/adapters/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, experiment.runs)),
    priority: 10  # it takes longest, and other jobs can run meanwhile
    threads: cpus("train")
    resources:
        **model_needs("train"),
        tuning=train_tuning,
    params:
        flags=train_flags,
        adapter=adapter_flag,
    shell:
        "{resources.venv_on_path}arc-refinery train --dataset-path {input.prompts} {params.flags} {params.adapter}"
        " {resources.tuning} --checkpoints {output}.checkpoints --tensorboard {log.log}.tensorboard"
        " --measurements {log.measured}"
        " --output-dir {output} > {log.log} 2>&1"
