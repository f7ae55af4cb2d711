# Collect the tasks of the evaluation sets.


rule evaluation_tasks:
    input:
        task_set_files,
    output:
        "<results>/tasks/{tasks}.parquet",
    log:
        "<logs>/{tasks}/tasks.log",
    benchmark:
        "<benchmarks>/{tasks}/tasks.tsv"
    wildcard_constraints:
        tasks="|".join(task_set.name for task_set in experiment.evaluation.sets),
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=task_set_flags,
    shell:
        "arc-refinery task-set {params.flags} --output {output} 2> {log}"
