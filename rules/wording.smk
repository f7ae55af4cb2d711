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
        flags=flags_of(domain_part(experiment.domain, "stages:wording")),
        folder=subpath(output[0], parent=True),
    message:
        "learn the wording of the model's training rows"
    shell:
        "{resources.venv_on_path}arc-refinery prompts learn {params.flags} --output {params.folder} > {log} 2>&1"
