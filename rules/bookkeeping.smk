# Part of every experiment: settings, training curves.


rule settings:
    output:
        "<results>/settings.json",
    log:
        "<logs>/settings.log",
    localrule: True
    params:
        content=jobs.settings_text(experiment),
    message:
        "write the settings"
    shell:
        "printf '%s\n' {params.content:q} > {output} 2> {log}"


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
            name=one_of(experiment.adapters),
        threads: cpus("cpu")
        resources:
            **needs("cpu"),
        message:
            "plot the training of {wildcards.name}"
        shell:
            "{resources.venv_on_path}arc-refinery report curves --log {input}/training.jsonl --output {output.png} 2> {log}"
