# First-turn attempts and their verdicts become the prompts of the next turn, to evaluate or to train on, and
# demonstrations. Jobs find them beside their prompts: the paths of many shards do not fit into one command line.
# `ancient`: another evaluation set does not train again. The report refuses its primary comparison if it was trained on.


rule refining_prompts:
    input:
        prompts=from_wildcards(kind.inputs.parent_prompts, "tasks", "branch"),
        attempts=from_wildcards(kind.inputs.parent_attempts, "tasks", "branch"),
        verdicts=from_wildcards(kind.inputs.parent_verdicts, "tasks", "branch"),
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
        branch="[a-z0-9.@-]+-turn[0-9]+",
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
        tuning=tuning(kind.refining_prompts, "tasks", "branch"),
    params:
        settings=settings(kind.refining_prompts, "tasks", "branch"),
    message:
        "write prompts: {wildcards.tasks}, {wildcards.branch}"
    shell:
        "{resources.venv_on_path}arc-refinery stage refining_prompts {params.settings:q} --tuning {resources.tuning:q}"
        " --prompts {input.prompts} --output {output} 2> {log}"


if experiment.evaluation.reference_logprobs:

    rule reference_logprobs:
        input:
            prompts="<results>/{tasks}/{branch}/prompts.parquet",
            tasks="<results>/tasks/{tasks}.parquet",
            template=experiment.template_files(),
            domain=kind.inputs.domain_code(experiment),
            model=inputs.models(experiment),
            adapter=from_wildcards(kind.inputs.adapter, "tasks", "branch"),
        output:
            "<results>/{tasks}/{branch}/reference.parquet",
        log:
            "<logs>/{tasks}/{branch}/reference.log",
        benchmark:
            "<benchmarks>/{tasks}/{branch}/reference.tsv"
        threads: cpus("sample")
        resources:
            **needs("sample"),
        params:
            settings=settings(kind.reference_logprobs, "tasks", "branch"),
        message:
            "score the tasks' own programs: {wildcards.tasks}, {wildcards.branch}"
        shell:
            "{resources.venv_on_path}arc-refinery stage reference_logprobs {params.settings:q} --tasks {input.tasks}"
            " --prompts {input.prompts} --adapter {input.adapter} --n-jobs {threads} --output {output} > {log} 2>&1"


if experiment.runs and experiment.training.prompts == "first-turn":

    use rule first_prompts as training_prompts with:
        input:
            tasks="<results>/tasks/{tasks}.parquet",
            overlap=ancient(kind.inputs.overlap(experiment)),
            template=experiment.template_files(),
            domain=kind.inputs.domain_code(experiment),
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
            settings=settings(kind.training_prompts, "tasks"),
        message:
            "write prompts to train on: {wildcards.tasks}"

elif experiment.runs:

    rule training_prompts:
        input:
            prompts=f"<results>/{{tasks}}/{experiment.refined_branch}/prompts.parquet",
            attempts=from_wildcards(kind.inputs.attempts, "tasks", branch=experiment.refined_branch),
            verdicts=from_wildcards(kind.inputs.verdicts, "tasks", branch=experiment.refined_branch),
            overlap=ancient(kind.inputs.overlap(experiment)),
            template=experiment.template_files(),
            domain=kind.inputs.domain_code(experiment),
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
            tuning=tuning(kind.training_prompts, "tasks"),
        params:
            settings=settings(kind.training_prompts, "tasks"),
        message:
            "write prompts to train on: {wildcards.tasks}"
        shell:
            "{resources.venv_on_path}arc-refinery stage refining_prompts {params.settings:q} --tuning {resources.tuning:q}"
            " --prompts {input.prompts} --overlap {input.overlap} --output {output} 2> {log}"


if experiment.sft_adapters:

    rule demonstrations:
        input:
            tasks="<results>/tasks/{tasks}.parquet",
            prompts=f"<results>/{{tasks}}/{experiment.refined_branch}/prompts.parquet",
            attempts=from_wildcards(kind.inputs.attempts, "tasks", branch=experiment.refined_branch),
            verdicts=from_wildcards(kind.inputs.verdicts, "tasks", branch=experiment.refined_branch),
            overlap=ancient(kind.inputs.overlap(experiment)),
            template=experiment.template_files(),
            domain=kind.inputs.domain_code(experiment),
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
            tuning=tuning(kind.demonstrations, "tasks"),
        params:
            settings=settings(kind.demonstrations, "tasks"),
        message:
            "write demonstrations to train on: {wildcards.tasks}"
        shell:
            "{resources.venv_on_path}arc-refinery stage demonstrations {params.settings:q} --tuning {resources.tuning:q}"
            " --tasks {input.tasks} --prompts {input.prompts} --overlap {input.overlap} --n-jobs {threads}"
            " --output {output} 2> {log}"


rule prompt_lengths:
    input:
        kind.inputs.all_prompts(experiment),
    output:
        markdown="<results>/lengths.md",
        figure=report("<results>/lengths.png", caption="../workflow/report/figure.rst", category="Figures"),
        svg="<results>/lengths.svg",
        table="<results>/lengths.csv",
    log:
        "<logs>/lengths.log",
    benchmark:
        "<benchmarks>/lengths.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        window=experiment.model.window,
        folder=subpath(output.markdown, parent=True),
    message:
        "measure the lengths of prompts"
    shell:
        "{resources.venv_on_path}arc-refinery report lengths --prompts {input} --max-model-len {params.window} --output {params.folder} 2> {log}"
