# The comparison of the arms, for people.


rule settings:
    output:
        "<results>/settings.json",
    log:
        "<logs>/settings.log",
    localrule: True
    conda:
        "../envs/cpu.yaml"
    params:
        content=settings_text(),
    shell:
        "printf '%s\n' {params.content:q} > {output} 2> {log}"


rule report:
    input:
        settings="<results>/settings.json",
        tasks=expand("<results>/tasks/{tasks}.parquet", tasks=[s.name for s in experiment.evaluation.sets]),
        adapters=trained_adapters(),
        training_prompts=training_prompts(),
        prompts=evaluation_prompts(),
        attempts=evaluation_files("attempts"),
        verdicts=evaluation_files("verdicts"),
    output:
        markdown=report(f"results/{experiment.experiment}.md", caption="../workflow/report/report.rst"),
        figures=report(
            directory("<results>/report"),
            patterns=["{name}.png"],
            caption="../workflow/report/figure.rst",
            category="Figures",
        ),
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        folder=subpath(input.settings, parent=True),
    shell:
        "arc-refinery report --config {input.settings} --folder {params.folder} --output {output.markdown} 2> {log}"


if experiment.training:

    rule training_curves:
        input:
            "<results>/adapters/{name}",
        output:
            report("<results>/adapters/{name}.png", caption="../workflow/report/curves.rst", category="Training"),
        log:
            "<logs>/adapters/{name}.curves.log",
        benchmark:
            "<benchmarks>/adapters/{name}.curves.tsv"
        wildcard_constraints:
            name="|".join(map(re.escape, experiment.adapters)),
        conda:
            "../envs/cpu.yaml"
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        shell:
            "arc-refinery curves --log {input}/training.jsonl --output {output} 2> {log}"


rule prompt_lengths:
    input:
        all_prompts(),
    output:
        markdown="<results>/lengths.md",
        figure=report("<results>/lengths.png", caption="../workflow/report/figure.rst", category="Figures"),
        table="<results>/lengths.csv",
    log:
        "<logs>/lengths.log",
    benchmark:
        "<benchmarks>/lengths.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        window=experiment.model.window,
        folder=subpath(output.markdown, parent=True),
    shell:
        "arc-refinery lengths --prompts {input} --window {params.window} --output-folder {params.folder} 2> {log}"
