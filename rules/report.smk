# Compare the arms and write the report.


rule report:
    input:
        settings="<results>/settings.json",
        fetched=inputs.fetched_records(experiment),
        adapters=inputs.adapters(experiment.adapters),
        compared=from_wildcards(kind.report_inputs),
    output:
        **experiment.report_tables,
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
    message:
        "write the report"
    shell:
        "{resources.venv_on_path}arc-refinery report --configfile {input.settings} --results {params.folder} --output {output.markdown} 2> {log}"
