# Learn the wording that the model was trained on from its own training rows.


rule wording:
    input:
        inputs.rows_files(experiment, experiment.template_rows),
    output:
        kind.inputs.templates(experiment),
    log:
        "<logs>/wording.log",
    benchmark:
        "<benchmarks>/wording.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        n_rows=experiment.template_rows.n_rows,
        colors=shlex.join(["--colors", *experiment.model.colors] if experiment.model.colors else []),
        folder=subpath(output[0], parent=True),
    message:
        "learn the wording of the model's training rows"
    shell:
        "{resources.venv_on_path}arc-refinery prompts learn --messages {input} --n-rows {params.n_rows}"
        " {params.colors} --output {params.folder} > {log} 2>&1"
