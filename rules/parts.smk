# Training data: turn problems into tasks and split them into parts.


rule problems:
    input:
        rows_files(experiment.problems),
    output:
        "<results>/problems.parquet",
    log:
        "<logs>/problems.log",
    benchmark:
        "<benchmarks>/problems.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags(problems_settings()),
    shell:
        "arc-refinery problems {params.flags} --output {output} 2> {log}"


rule tasks:
    input:
        "<results>/problems.parquet",
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
        flags=flags(
            {
                "tasks_per_part": experiment.parts.tasks_per_part,
                "max_cells": experiment.problems.max_cells,
                "seed": experiment.seed,
            }
        ),
    shell:
        "arc-refinery tasks --problems-path {input} {params.flags} --outputs {output} 2> {log}"
