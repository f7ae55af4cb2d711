# `snakemake doctor`: check the machines and environments that the experiment's jobs would get. Not part of any experiment.


rule doctor_config:
    output:
        "results/doctor/config.json",
    log:
        "logs/doctor/config.log",
    localrule: True
    params:
        content=experiment.model_dump_json(),
    shell:
        "printf '%s\n' {params.content:q} > {output} 2> {log}"


doctor_jobs = ["cpu", "sample", *(["train"] if experiment.training else [])]
for kind in doctor_jobs:

    rule:
        name:
            f"doctor_{kind}"
        input:
            config="results/doctor/config.json",
            others="results/doctor/cpu.json" if kind != "cpu" else [],
        output:
            f"results/doctor/{kind}.json",
        log:
            f"logs/doctor/{kind}.log",
        retries: 0  # another machine would hide what is wrong with this one
        threads: cpus(kind)
        resources:
            **model_needs(kind),
            max_retries=0,
        params:
            flags=flags_of(stages.doctor, job=kind, others=["results/doctor/cpu.json"] if kind != "cpu" else []),
        shell:
            "{resources.venv_on_path}arc-refinery doctor --config {input.config} {params.flags} --findings {output} > {log} 2>&1"


rule doctor:
    input:
        config="results/doctor/config.json",
        findings=expand("results/doctor/{kind}.json", kind=doctor_jobs),
    log:
        "logs/doctor/doctor.log",
    retries: 0
    localrule: True
    shell:
        "arc-refinery doctor --config {input.config} --jobs --others {input.findings} 2>&1 | tee {log}"
