# Tool use: questions, conversations to imitate, episodes on held-out questions.


rule heldout_questions:
    input:
        from_wildcards(kind.inputs.rows_of, "heldout"),
    output:
        "<results>/questions/{heldout}.parquet",
    log:
        "<logs>/{heldout}/questions.log",
    benchmark:
        "<benchmarks>/{heldout}/questions.tsv"
    wildcard_constraints:
        heldout=one_of(one.name for one in experiment.data.heldout),
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        settings=settings(kind.questions, "heldout"),
    message:
        "make the questions of {wildcards.heldout}"
    shell:
        "{resources.venv_on_path}arc-refinery stage questions {params.settings:q} --split heldout --output {output} 2> {log}"


rule episodes:
    input:
        questions="<results>/questions/{questions}.parquet",
        model=inputs.models(experiment),
        adapter=from_wildcards(kind.inputs.arm_adapter, "arm"),
        files=kind.inputs.files_to_read(experiment),
        tools=from_wildcards(kind.inputs.tools_of_arm, "questions", "arm"),
    output:
        "<results>/{questions}/{arm}/{shard}.parquet",
    log:
        "<logs>/{questions}/{arm}/episodes-{shard}.log",
    benchmark:
        "<benchmarks>/{questions}/{arm}/episodes-{shard}.tsv"
    wildcard_constraints:
        questions=one_of(one.name for one in experiment.data.heldout),
        arm=one_of(arm.name for arm in experiment.arms),
    threads: cpus("sample")
    resources:
        **needs("sample"),
        tuning=tuning(kind.episodes, "questions", "arm"),
    params:
        settings=settings(kind.episodes, "questions", "arm"),
        n_shards=from_wildcards(type(experiment).n_shards, "questions"),
    message:
        "run episodes: {wildcards.questions}, {wildcards.arm}, shard {wildcards.shard}"
    shell:
        "{resources.venv_on_path}arc-refinery stage episodes {params.settings:q} --tuning {resources.tuning:q}"
        " --questions {input.questions} --adapter {input.adapter} --shard {wildcards.shard} --n-shards {params.n_shards}"
        " --output {output} > {log} 2>&1"


if experiment.training:

    rule training_questions:
        input:
            files=from_wildcards(kind.inputs.rows_of, "train"),
            heldout=kind.inputs.heldout_questions(experiment),
        output:
            "<results>/questions/{train}.parquet",
        log:
            "<logs>/{train}/questions.log",
        benchmark:
            "<benchmarks>/{train}/questions.tsv"
        wildcard_constraints:
            train=one_of(one.name for one in experiment.data.train),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            settings=settings(kind.questions, "train"),
        message:
            "make the questions of {wildcards.train}"
        shell:
            "{resources.venv_on_path}arc-refinery stage questions {params.settings:q}"
            " --split train --heldout {input.heldout} --output {output} 2> {log}"


if experiment.sft_adapters:

    rule conversations:
        input:
            questions=kind.inputs.training_questions(experiment),
            model=inputs.models(experiment),
            tools=kind.inputs.tools_in_training(experiment),
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
            settings=settings(kind.conversations),
        message:
            "write conversations to train on"
        shell:
            "{resources.venv_on_path}arc-refinery stage conversations {params.settings:q}"
            " --questions {input.questions} --output {output} 2> {log}"
