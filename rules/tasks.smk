# Problems become tasks, tasks are dealt into parts; evaluation sets come from elsewhere.


rule problems:
    output:
        "<results>/problems.parquet",
    log:
        "<logs>/problems.log",
    benchmark:
        "<benchmarks>/problems.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags(
            experiment.problems.model_dump()
            | {"n_wanted": experiment.parts.n_parts * experiment.parts.tasks_per_part, "seed": experiment.seed}
        ),
    shell:
        "arc-refinery problems {params.flags} --output {output} 2> {log}"


rule tasks:
    input:
        "<results>/problems.parquet",
    output:
        expand("<results>/tasks/{part}.parquet", part=experiment.parts.names),
    log:
        "<logs>/tasks.log",
    benchmark:
        "<benchmarks>/tasks.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags(
            {
                "tasks_per_part": experiment.parts.tasks_per_part,
                "max_cells": experiment.problems.max_cells,
                "seed": experiment.seed,
            }
        ),
    shell:
        "arc-refinery tasks --problems-path {input} {params.flags} --outputs {output} 2> {log}"


rule evaluation_tasks:
    input:
        only=list_of_tasks,
    output:
        "<results>/tasks/{tasks}.parquet",
    log:
        "<logs>/{tasks}/tasks.log",
    benchmark:
        "<benchmarks>/{tasks}/tasks.tsv"
    wildcard_constraints:
        tasks="|".join(task_set.name for task_set in experiment.evaluation.sets),
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=task_set_flags,
    shell:
        "arc-refinery task-set {params.flags} --output {output} 2> {log}"
