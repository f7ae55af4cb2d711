# `snakemake doctor`: check the machines and environments that the experiment's jobs would get. Not part of any experiment.


rule doctor_config:
    output:
        "results/doctor/config.json",
    log:
        "logs/doctor/config.log",
    localrule: True
    params:
        content=experiment.model_dump_json(),
    message:
        "write the settings"
    shell:
        "printf '%s\n' {params.content:q} > {output} 2> {log}"


doctor_jobs = ["cpu", "sample", *(["train"] if experiment.training else [])]
for job in doctor_jobs:

    rule:
        name:
            f"doctor_{job}"
        input:
            config="results/doctor/config.json",
            others="results/doctor/cpu.json" if job != "cpu" else [],
        output:
            f"results/doctor/{job}.json",
        log:
            f"logs/doctor/{job}.log",
        retries: 0  # another machine would hide what is wrong with this one
        threads: cpus(job)
        resources:
            **needs(job),
            max_retries=0,
        params:
            job=job,
        message:
            "check the machine of a {params.job} job"
        shell:
            "{resources.venv_on_path}arc-refinery doctor --configfile {input.config} --jobs {params.job} --others {input.others} --findings {output} > {log} 2>&1"


rule doctor:
    input:
        config="results/doctor/config.json",
        findings=expand("results/doctor/{job}.json", job=doctor_jobs),
    log:
        "logs/doctor/doctor.log",
    retries: 0
    localrule: True
    message:
        "sum up the checks"
    shell:
        "arc-refinery doctor --configfile {input.config} --jobs --others {input.findings} 2>&1 | tee {log}"
