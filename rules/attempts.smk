# Sampling needs a GPU, grading does not: with two rules, no GPU waits for Python.


rule first_prompts:
    input:
        tasks="<results>/tasks/{tasks}.parquet",
        overlap=[],
        template=experiment.template_files(),
        domain=kind.inputs.domain_code(experiment),
        model=inputs.models(experiment),
    output:
        "<results>/{tasks}/{branch}/prompts.parquet",
    log:
        "<logs>/{tasks}/{branch}/prompts.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/prompts.tsv"
    wildcard_constraints:
        branch="turn1(?!-broken)(-.+)?",
    priority: 20  # if no prompt fits, the run ends before anything is sampled
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        settings=settings(kind.first_prompts, "tasks", "branch"),
    message:
        "write prompts: {wildcards.tasks}, {wildcards.branch}"
    shell:
        "{resources.venv_on_path}arc-refinery stage first_prompts {params.settings:q}"
        " --tasks {input.tasks} --overlap {input.overlap} --output {output} 2> {log}"


rule sample:
    input:
        prompts="<results>/{tasks}/{branch}/prompts.parquet",
        model=inputs.models(experiment),
        adapter=from_wildcards(kind.inputs.adapter, "tasks", "branch"),
    output:
        "<results>/{tasks}/{branch}/attempts/{shard}.parquet",
    log:
        "<logs>/{tasks}/{branch}/sample-{shard}.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/sample-{shard}.tsv"
    wildcard_constraints:
        branch="(?!turn1-broken).+",
    threads: cpus("sample")
    resources:
        **needs("sample"),
        tuning=tuning(kind.sample, "tasks", "branch"),
    params:
        settings=settings(kind.sample, "tasks", "branch"),
        n_shards=from_wildcards(type(experiment).n_shards, "tasks"),
    message:
        "sample: {wildcards.tasks}, {wildcards.branch}, shard {wildcards.shard}"
    shell:
        "{resources.venv_on_path}arc-refinery stage sample {params.settings:q} --tuning {resources.tuning:q}"
        " --prompts {input.prompts} --adapter {input.adapter} --shard {wildcards.shard} --n-shards {params.n_shards}"
        " --output {output} > {log} 2>&1"


rule break_programs:
    input:
        tasks="<results>/tasks/{tasks}.parquet",
        template=experiment.template_files(),
        domain=kind.inputs.domain_code(experiment),
        model=inputs.models(experiment),
    output:
        prompts="<results>/{tasks}/{branch}/prompts.parquet",
        attempts="<results>/{tasks}/{branch}/attempts/000.parquet",
    log:
        "<logs>/{tasks}/{branch}/break.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/break.tsv"
    wildcard_constraints:
        branch="turn1-broken(-.+)?",
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        settings=settings(kind.break_programs, "tasks", "branch"),
    message:
        "break programs: {wildcards.tasks}, {wildcards.branch}"
    shell:
        "{resources.venv_on_path}arc-refinery stage break_programs {params.settings:q}"
        " --tasks {input.tasks} --n-jobs {threads} --prompts {output.prompts} --output {output.attempts} 2> {log}"


rule grade:
    input:
        attempts=from_wildcards(kind.inputs.attempts_to_grade, "tasks", "branch", "job"),
        tasks="<results>/tasks/{tasks}.parquet",
        domain=kind.inputs.domain_code(experiment),
    output:
        "<results>/{tasks}/{branch}/verdicts/{job}.parquet",
    log:
        "<logs>/{tasks}/{branch}/grade-{job}.log",
    benchmark:
        "<benchmarks>/{tasks}/{branch}/grade-{job}.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        settings=settings(kind.grade),
    message:
        "grade: {wildcards.tasks}, {wildcards.branch}, job {wildcards.job}"
    shell:
        "{resources.venv_on_path}arc-refinery stage grade {params.settings:q}"
        " --attempts {input.attempts} --tasks {input.tasks} --n-jobs {threads} --output {output} 2> {log}"
