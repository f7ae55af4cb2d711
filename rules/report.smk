# Compare the arms and write the report.


tables = {"attempts": "<results>/attempts.parquet"} if experiment.kind == "refining" else {}


rule report:
    input:
        settings="<results>/settings.json",
        fetched=inputs.fetched_records(experiment),
        adapters=inputs.adapters(experiment.adapters),
        compared=of(inputs.report_inputs),
    output:
        **tables,
        markdown=f"results/{experiment.experiment}.md",
        html=report(f"results/{experiment.experiment}.html", caption="../workflow/report/report.rst", category="Report"),
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
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        folder=subpath(input.settings, parent=True),
    shell:
        "arc-refinery report --config {input.settings} --folder {params.folder} --output {output.markdown} 2> {log}"


if experiment.kind == "refining":

    rule prompt_lengths:
        input:
            inputs.all_prompts(experiment),
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
        shell:
            "arc-refinery report lengths --prompts {input} --window {params.window} --output-folder {params.folder} 2> {log}"


if experiment.kind in ("refining", "tool-use"):

    rule compare:
        input:
            of(inputs.reports, origin=config_origin()),
        output:
            markdown="results/compare.md",
            html="results/compare.html",
        log:
            "logs/compare.log",
        benchmark:
            "logs/benchmarks/compare.tsv"
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        params:
            folders=[f"results/{name}" for name in reversed(experiment.compare)],  # later ones minus earlier ones
        shell:
            "arc-refinery compare {params.folders} --output {output.markdown} 2> {log}"
