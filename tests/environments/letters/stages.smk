rule words:
    output:
        "<results>/words.txt",
    log:
        "<logs>/words.log",
    localrule: True
    params:
        n_words=experiment.n_words,
    shell:
        "seq {params.n_words} > {output} 2> {log}"
