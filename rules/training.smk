# LoRA adapters: supervised fine-tuning on demonstrations or conversations, and GRPO, once for each run of a sweep and in
# as many jobs as adapters of it are kept: `trained@1000`, `trained@2000`, `trained`.
# Checkpoints are kept where Snakemake deletes nothing, so an evicted job resumes.


if experiment.sft_adapters:

    rule sft:
        input:
            **kind.sft_inputs(experiment),
            model=inputs.models(experiment),
        output:
            directory("<results>/adapters/{sft}"),
        log:
            log="<logs>/adapters/{sft}.log",
            measured="<logs>/adapters/{sft}.measured.jsonl",
        benchmark:
            "<benchmarks>/adapters/{sft}.tsv"
        wildcard_constraints:
            sft=one_of(experiment.sft_adapters),
        priority: 10  # everything that is trained waits for it
        threads: cpus("train")
        resources:
            **needs("train"),
            tuning=tuning(jobs.sft, "sft"),
        params:
            settings=settings(jobs.sft, "sft"),
        message:
            "fine-tune {wildcards.sft}"
        shell:
            "{resources.venv_on_path}arc-refinery stage sft {params.settings:q} --tuning {resources.tuning:q}"
            " --data {input.data} --checkpoints {output}.checkpoints --tensorboard {log.log}.tensorboard"
            " --measurements {log.measured} --output {output} > {log.log} 2>&1"


if experiment.runs:

    rule train:
        input:
            **kind.grpo_inputs(experiment),
            functions=inputs.files_of_grpo(experiment),
            start=from_wildcards(inputs.start_of, "run"),
            before=from_wildcards(inputs.kept_before, "run"),
            model=inputs.models(experiment),
        output:
            directory("<results>/adapters/{run}"),
        log:
            log="<logs>/adapters/{run}.log",
            measured="<logs>/adapters/{run}.measured.jsonl",
        benchmark:
            "<benchmarks>/adapters/{run}.tsv"
        wildcard_constraints:
            run=one_of([*experiment.runs, *experiment.kept_adapters]),
        priority: 10  # it takes longest, and others can run beside it
        threads: cpus("train")
        resources:
            **needs("train"),
            tuning=tuning(jobs.train, "run"),
        params:
            settings=settings(jobs.train, "run"),
        message:
            "train {wildcards.run}"
        shell:
            "{resources.venv_on_path}arc-refinery stage train {params.settings:q} --tuning {resources.tuning:q}"
            " --data {input.data} --start {input.start} --before {input.before} --checkpoints {output}.checkpoints"
            " --tensorboard {log.log}.tensorboard --measurements {log.measured} --output {output} > {log.log} 2>&1"
