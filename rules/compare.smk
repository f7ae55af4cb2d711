# Compare experiments that are finished: snakemake compare.


rule compare:
    input:
        from_wildcards(inputs.reports, origin=config_origin()),
    output:
        markdown="results/compare.md",
        html="results/compare.html",
        pictures=multiext("results/compare", ".png", ".svg"),
    log:
        "logs/compare.log",
    benchmark:
        "logs/benchmarks/compare.tsv"
    threads: cpus("cpu")
    resources:
        **needs("cpu"),
    params:
        folders=[f"results/{name}" for name in reversed(experiment.compare)],  # later ones minus earlier ones
    message:
        "compare reports"
    shell:
        "{resources.venv_on_path}arc-refinery compare {params.folders} --output {output.markdown} 2> {log}"
