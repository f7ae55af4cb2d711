# Download models and data from the Hugging Face hub. Jobs run offline and read the fetched files.


rule fetch:
    output:
        files=directory("<results>/fetched/{repository}"),
        record="<results>/fetched/{repository}.json",
    log:
        "<logs>/fetched/{repository}.log",
    benchmark:
        "<benchmarks>/fetched/{repository}/fetch.tsv"
    wildcard_constraints:
        repository=one_of(download.path for download in experiment.downloads),
    localrule: True  # cluster machines may have no network
    resources:
        offline=os.environ.get("HF_HUB_OFFLINE", ""),  # the user's setting
    params:
        settings=settings(jobs.fetch, "repository"),
    message:
        "download {wildcards.repository}"
    shell:
        "HF_HUB_OFFLINE={resources.offline} arc-refinery stage fetch {params.settings:q} --output {output.files} 2> {log}"
