# Learn the wording that the model was trained on from its own training rows.


rule wording:
    input:
        rows_files(experiment.template_rows),
    output:
        template_files(template()),
    log:
        "<logs>/wording.log",
    benchmark:
        "<benchmarks>/wording.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        flags=flags(wording_settings()),
        folder=subpath(output[0], parent=True),
    shell:
        "arc-refinery prompts learn {params.flags} --output {params.folder} > {log} 2>&1"
