# First-turn attempts and their verdicts become the prompts of the next turn, to evaluate or to train on, and
# demonstrations. Commands get their folder and number: the paths of many shards do not fit into one command line.
# `ancient`: another evaluation set does not train again. The report refuses its primary comparison if it was trained on.


rule refining_prompts:
    input:
        prompts=of(inputs.parent_prompts, "tasks", "branch"),
        attempts=of(inputs.parent_attempts, "tasks", "branch"),
        verdicts=of(inputs.parent_verdicts, "tasks", "branch"),
        template=inputs.templates(experiment),
        model=of(inputs.sampler, "tasks", "branch"),
    output:
        "<results>/{tasks}/{branch}/prompts.parquet",
    log:
        "<logs>/{tasks}/{branch}/prompts.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/prompts.tsv"
    wildcard_constraints:
        branch="[a-z0-9.@-]+-turn[0-9]+",
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags_of(stages.refining_prompts, "branch"),
        folder=subpath(input.prompts, parent=True),
        files=flags_of(stages.branch_files, "tasks"),
    shell:
        "arc-refinery prompts refine --folder {params.folder} {params.files}"
        " --branch {wildcards.branch} {params.flags} --output {output} 2> {log}"


if experiment.runs and experiment.training.prompts == "first-turn":

    use rule first_prompts as training_prompts with:
        input:
            tasks="<results>/tasks/{tasks}.parquet",
            overlap=ancient(inputs.left_out_of_training(experiment)),
            template=inputs.templates(experiment),
            model=inputs.models(experiment),
        output:
            "<results>/{tasks}/training/prompts.parquet",
        log:
            "<logs>/{tasks}/training/prompts.log",
        benchmark:
            "<benchmarks>/{tasks}/training/prompts.tsv"
        wildcard_constraints:
            tasks=one_of(experiment.training_tasks),
        priority: 10  # training waits for it
        params:
            flags=flags_of(stages.training_prompts),
            overlap=overlap_flag,

elif experiment.runs:

    rule training_prompts:
        input:
            prompts="<results>/{tasks}/turn1/prompts.parquet",
            attempts=of(inputs.attempts, "tasks"),
            verdicts=of(inputs.verdicts, "tasks"),
            overlap=ancient(inputs.left_out_of_training(experiment)),
            template=inputs.templates(experiment),
            model=inputs.models(experiment),
        output:
            "<results>/{tasks}/training/prompts.parquet",
        log:
            "<logs>/{tasks}/training/prompts.log",
        benchmark:
            "<benchmarks>/{tasks}/training/prompts.tsv"
        wildcard_constraints:
            tasks=one_of(experiment.training_tasks),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=flags_of(stages.training_prompts),
            overlap=overlap_flag,
            folder=subpath(input.prompts, parent=True),
            files=flags_of(stages.branch_files, "tasks"),
        shell:
            "arc-refinery prompts refine --folder {params.folder} {params.files}"
            " {params.overlap} {params.flags} --output {output} 2> {log}"


if experiment.sft_adapters:

    rule demonstrations:
        input:
            tasks="<results>/tasks/{tasks}.parquet",
            prompts="<results>/{tasks}/turn1/prompts.parquet",
            attempts=of(inputs.attempts, "tasks"),
            verdicts=of(inputs.verdicts, "tasks"),
            overlap=ancient(inputs.left_out_of_training(experiment)),
            template=inputs.templates(experiment),
            model=inputs.models(experiment),
        output:
            "<results>/{tasks}/training/demonstrations.parquet",
        log:
            "<logs>/{tasks}/training/demonstrations.log",
        benchmark:
            "<benchmarks>/{tasks}/training/demonstrations.tsv"
        wildcard_constraints:
            tasks=one_of(experiment.training_tasks),
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            flags=flags_of(stages.demonstrations),
            overlap=overlap_flag,
            folder=subpath(input.prompts, parent=True),
            files=flags_of(stages.branch_files, "tasks"),
        shell:
            "arc-refinery prompts demonstrations --folder {params.folder} {params.files} --tasks-path {input.tasks}"
            " {params.overlap} {params.flags} --n-jobs {threads} --output {output} 2> {log}"
