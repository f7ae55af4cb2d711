# The embedded model, from nothing: `snakemake pretrain`. Its weights are shipped, so no experiment asks for it.


rule pretrain:
    output:
        directory("results/pretrained"),
    log:
        "logs/pretrain.log",
    benchmark:
        "logs/benchmarks/pretrain.tsv"
    conda:
        "../envs/cpu.yaml"
    threads: 2
    resources:
        **requests(Needs(mem_mb=4000, runtime=120)),
    shell:
        # Without these two, glibc gives memory back to the kernel after each step and asks for it again.
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592"
        " arc-refinery pretrain --output-folder {output} --checkpoint {output}.checkpoint 2> {log}"
