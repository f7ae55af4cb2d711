# Tool use: questions, conversations for SFT, training, episodes on held-out questions, report.


rule heldout_questions:
    input:
        question_files,
    output:
        "<results>/questions/{heldout}.parquet",
    log:
        "<logs>/{heldout}/questions.log",
    benchmark:
        "<benchmarks>/{heldout}/questions.tsv"
    wildcard_constraints:
        heldout="|".join(one.name for one in experiment.data.heldout),
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=question_flags,
    shell:
        "arc-refinery questions {params.flags} --split heldout --output {output} 2> {log}"


rule episodes:
    input:
        questions="<results>/questions/{questions}.parquet",
        model=model_files(experiment.model),
        adapter=arm_adapter,
        files=files_to_read(),
    output:
        "<results>/{questions}/{arm}/{shard}.parquet",
    log:
        "<logs>/{questions}/{arm}/episodes-{shard}.log",
    benchmark:
        "<benchmarks>/{questions}/{arm}/episodes-{shard}.tsv"
    wildcard_constraints:
        questions="|".join(one.name for one in experiment.data.heldout),
        arm="|".join(arm.name for arm in experiment.evaluation.arms),
    threads: cpus("sample")
    resources:
        **model_needs("sample"),
        tuning=flags(experiment.model.model_dump(include={"gpu_memory_utilization"}) | {"n_jobs": cpus("sample")}),
    params:
        flags=episode_flags,
        adapter=adapter_flag,
        folder=subpath(output[0], parent=True),
        n_shards=question_shards,
    shell:
        "{resources.venv_on_path}arc-refinery episodes --dataset-path {input.questions} {params.flags} {params.adapter}"
        " {resources.tuning} --shard {wildcards.shard} --n-shards {params.n_shards} --output-folder {params.folder} 2> {log}"


if experiment.training:

    rule training_questions:
        input:
            files=question_files,
            heldout=[f"<results>/questions/{one.name}.parquet" for one in experiment.data.heldout],
        output:
            "<results>/questions/{train}.parquet",
        log:
            "<logs>/{train}/questions.log",
        benchmark:
            "<benchmarks>/{train}/questions.tsv"
        wildcard_constraints:
            train="|".join(one.name for one in experiment.data.train),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=question_flags,
        shell:
            "arc-refinery questions {params.flags} --split train --heldout {input.heldout} --output {output} 2> {log}"


if experiment.sft_adapter:

    rule conversations:
        input:
            questions=training_questions_files(),
            model=model_files(experiment.model),
        output:
            "<results>/training/conversations.parquet",
        log:
            "<logs>/training/conversations.log",
        benchmark:
            "<benchmarks>/training/conversations.tsv"
        priority: 10
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=conversation_flags(),
        shell:
            "arc-refinery conversations --dataset-path {input.questions} {params.flags} --output {output} 2> {log}"

    rule sft:
        input:
            conversations="<results>/training/conversations.parquet",
            model=model_files(experiment.model),
        output:
            directory(f"<results>/adapters/{experiment.sft_adapter}"),
        log:
            log=f"<logs>/adapters/{experiment.sft_adapter}.log",
            measured=f"<logs>/adapters/{experiment.sft_adapter}.measured.jsonl",
        benchmark:
            f"<benchmarks>/adapters/{experiment.sft_adapter}.tsv"
        priority: 10
        threads: cpus("train")
        resources:
            **model_needs("train"),
            tuning=sft_tuning(),
        params:
            flags=flags(sft_settings(experiment.seed)),
        shell:
            "{resources.venv_on_path}arc-refinery sft --dataset-path {input.conversations} {params.flags} {resources.tuning}"
            " --checkpoints {output}.checkpoints --tensorboard {log.log}.tensorboard --measurements {log.measured}"
            " --output-dir {output} > {log.log} 2>&1"


if experiment.grpo_adapter:

    rule train:
        input:
            questions=training_questions_files(),
            model=model_files(experiment.model),
            adapter=f"<results>/adapters/{experiment.sft_adapter}" if experiment.sft_adapter else [],
            files=files_to_read(),
        output:
            directory(f"<results>/adapters/{experiment.grpo_adapter}"),
        log:
            log=f"<logs>/adapters/{experiment.grpo_adapter}.log",
            measured=f"<logs>/adapters/{experiment.grpo_adapter}.measured.jsonl",
        benchmark:
            f"<benchmarks>/adapters/{experiment.grpo_adapter}.tsv"
        priority: 10  # it takes longest, and other jobs can run meanwhile
        threads: cpus("train")
        resources:
            **model_needs("train"),
            tuning=flags(experiment.training.model_dump(include=CHANGE_NO_ADAPTER)),
        params:
            flags=train_tools_flags(),
            adapter=adapter_flag,
        shell:
            "{resources.venv_on_path}arc-refinery train-tools --dataset-path {input.questions} {params.flags} {params.adapter}"
            " {resources.tuning} --checkpoints {output}.checkpoints --tensorboard {log.log}.tensorboard"
            " --measurements {log.measured} --output-dir {output} > {log.log} 2>&1"


rule report:
    input:
        settings="<results>/settings.json",
        fetched=fetched_records(),
        questions=[f"<results>/questions/{one.name}.parquet" for one in experiment.data.heldout],
        adapters=[f"<results>/adapters/{name}" for name in experiment.adapters],
        episodes=all_episodes,
    output:
        markdown=f"results/{experiment.experiment}.md",
        html=report(f"results/{experiment.experiment}.html", caption="../workflow/report/report.rst", category="Report"),
        figures=report(
            directory("<results>/report"),
            patterns=["{name}.png"],
            caption="../workflow/report/figure.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        folder=subpath(input.settings, parent=True),
    shell:
        "arc-refinery tool-report --config {input.settings} --folder {params.folder} --output {output.markdown} 2> {log}"
