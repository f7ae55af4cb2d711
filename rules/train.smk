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
    priority: 10  # it takes longest, and others can run beside it
    conda:
        "../envs/cpu.yaml"
    threads: cpus("train")
    resources:
        **model_needs("train"),
    params:
        flags=flags(train_settings()),
    shell:
        "{resources.venv_on_path}arc-refinery train --dataset-path {input} {params.flags} --checkpoints {output}.checkpoints"
        " --output-dir {output} > {log} 2>&1"
