# Tasks: those of the evaluation sets, and problems that become tasks to be trained on, dealt into parts; which tasks to be
# trained on are evaluated, too.


rule evaluation_tasks:
    input:
        from_wildcards(kind.inputs.task_set, "tasks"),
    output:
        "<results>/tasks/{tasks}.parquet",
    log:
        "<logs>/{tasks}/tasks.log",
    benchmark:
        "<benchmarks>/{tasks}/tasks.tsv"
    wildcard_constraints:
        tasks=one_of(task_set.name for task_set in experiment.evaluation.sets),
    priority: 20  # first_prompts waits for it
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        settings=settings(kind.evaluation_tasks, "tasks"),
    message:
        "make the tasks of {wildcards.tasks}"
    shell:
        "{resources.venv_on_path}arc-refinery stage evaluation_tasks {params.settings:q} --output {output} 2> {log}"


if experiment.parts:

    rule tasks:
        input:
            inputs.rows_files(experiment, experiment.problems),
            kind.inputs.domain_code(experiment),
        output:
            expand("<results>/tasks/{part}.parquet", part=experiment.part_names),
        log:
            "<logs>/tasks.log",
        benchmark:
            "<benchmarks>/tasks.tsv"
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            settings=settings(kind.tasks),
        message:
            "make the tasks to train on"
        shell:
            "{resources.venv_on_path}arc-refinery stage tasks {params.settings:q} --n-jobs {threads} --output {output} 2> {log}"


if kind.inputs.overlap(experiment):

    rule overlap:
        input:
            **kind.inputs.trained_and_evaluated(experiment),
        output:
            kind.inputs.overlap(experiment)[0],
        log:
            "<logs>/training/overlap.log",
        benchmark:
            "<benchmarks>/training/overlap.tsv"
        priority: 10  # training waits for it
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            settings=settings(kind.overlap),
        message:
            "look for training tasks that are evaluated, too"
        shell:
            "{resources.venv_on_path}arc-refinery stage overlap {params.settings:q}"
            " --trained {input.trained} --evaluated {input.evaluated} --output {output} 2> {log}"
