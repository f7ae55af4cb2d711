# Learn the wording that the model was trained on from its own training rows.


rule wording:
    input:
        inputs.rows_files(experiment, experiment.arc.template_rows),
    output:
        experiment.template_files(),
    log:
        "<logs>/wording.log",
    benchmark:
        "<benchmarks>/wording.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        n_rows=experiment.arc.template_rows.n_rows,
        folder=subpath(output[0], parent=True),
    message:
        "learn the wording of the model's training rows"
    shell:
        "{resources.venv_on_path}arc-refinery prompts learn --messages {input} --n-rows {params.n_rows}"
        " --output {params.folder} > {log} 2>&1"
