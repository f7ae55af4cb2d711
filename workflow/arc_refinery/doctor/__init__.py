"""Check the machines that an experiment would run on: hardware, software, sandbox, files, sampling, training."""
