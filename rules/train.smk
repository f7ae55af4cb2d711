# GRPO with a LoRA adapter. Checkpoints lie where Snakemake deletes nothing, so an evicted job goes on.


rule train:
    input:
        expand("<results>/{part}/training/prompts.parquet", part=experiment.parts.names),
    output:
        directory("<results>/training"),
    log:
        "<logs>/train.log",
    benchmark:
        "<benchmarks>/train.tsv"
    params:
        flags=flags(train_settings()),
    threads: cpus("train")
    resources:
        **needs("train"),
    conda:
        "../envs/cpu.yaml"
    shell:
        "arc-refinery train --dataset-path {input} {params.flags} --checkpoints {output}.checkpoints"
        " --output-dir {output} 2> {log}"
