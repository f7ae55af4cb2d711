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
        markdown=f"results/{experiment.experiment}.md",
        html=report(f"results/{experiment.experiment}.html", caption="../workflow/report/report.rst", category="Report"),
        attempts="<results>/attempts.parquet",
        figures=report(
            directory("<results>/report"),
            patterns=["{name}.png"],
            caption="../workflow/report/figure.rst",
            category="Figures",
            labels={"figure": "{name}"},
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


rule machine_time:
    input:
        f"results/{experiment.experiment}.md",  # then all else has run
    output:
        "<logs>/machine-time.md",
    log:
        "<logs>/machine-time.log",
    localrule: True
    conda:
        "../envs/cpu.yaml"
    params:
        logs=subpath(output[0], parent=True),
    shell:
        "arc-refinery times --benchmarks {params.logs}/benchmarks --output {output} 2> {log}"


if experiment.training:

    rule training_curves:
        input:
            "<results>/adapters/{name}",
        output:
            png=report("<results>/adapters/{name}.png", caption="../workflow/report/curves.rst", category="Training"),
            svg="<results>/adapters/{name}.svg",
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
            "arc-refinery curves --log {input}/training.jsonl --output {output.png} 2> {log}"


rule prompt_lengths:
    input:
        all_prompts(),
    output:
        markdown="<results>/lengths.md",
        figure=report("<results>/lengths.png", caption="../workflow/report/figure.rst", category="Figures"),
        svg="<results>/lengths.svg",
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


rule compare:
    input:
        compared_reports,
    output:
        markdown="results/compare.md",
        html="results/compare.html",
    log:
        "logs/compare.log",
    benchmark:
        "logs/benchmarks/compare.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        folders=[f"results/{name}" for name in experiment.compare],
    shell:
        "arc-refinery side-by-side --folders {params.folders} --output {output.markdown} 2> {log}"
