#!/usr/bin/env bash
# HTCondor starts this on the machine of a job. Its arguments are a command: `python -m snakemake ...`, for one rule.
# Two variables of the submitting shell change which Python that is (docs/run.md):
#   ARC_REFINERY_IMAGE        a container image, for Apptainer
#   ARC_REFINERY_ENVIRONMENT  an archive of an environment that can be moved, unpacked once on each machine
set -eu

# Where HTCondor does not know that the file system is shared, it starts jobs in a folder of their own.
folder=$(sed -n 's/^OrigIwd = "\(.*\)"$/\1/p' "${_CONDOR_JOB_AD:-/dev/null}")
cd "${folder:-.}"

if [ -n "${ARC_REFINERY_IMAGE:-}" ]; then
  export PYTHONPATH="$PWD/workflow" # the image has the code from when it was built
  set -- apptainer exec --nv --bind "$PWD" --pwd "$PWD" "$ARC_REFINERY_IMAGE" python "${@:2}"
elif [ -n "${ARC_REFINERY_ENVIRONMENT:-}" ]; then
  cache=${ARC_REFINERY_CACHE:-/var/tmp/arc-refinery-$(id -u)}
  version=$(stat --format %Y-%s "$ARC_REFINERY_ENVIRONMENT")
  mkdir -p -m 700 "$cache"
  [ -O "$cache" ] || { echo "$cache belongs to somebody else: set ARC_REFINERY_CACHE to another folder" >&2; exit 1; }
  exec 9> "$cache/$version.lock"
  flock 9 # jobs that start together: one unpacks
  if [ ! -d "$cache/$version" ]; then
    mkdir -p "$cache/$version.partial"
    tar -xf "$ARC_REFINERY_ENVIRONMENT" -C "$cache/$version.partial"
    program="$cache/$version.partial/bin/arc-refinery" # the one of a virtual environment names the folder of before
    rm -f "$program"
    printf '#!/bin/sh\nexec "$(dirname "$0")/python" -m arc_refinery "$@"\n' > "$program"
    chmod +x "$program"
    mv "$cache/$version.partial" "$cache/$version"
  fi
  exec 9>&-
  set -- "$cache/$version/bin/python" "${@:2}"
fi

# HTCondor asks only this process to end. Snakemake would then finish its rule first, however long that takes; so all that
# it has started is asked too. Sampling and training resume wherever the job starts next.
set -m
"$@" &
job=$!
trap 'kill -TERM -- -$job' TERM
while kill -0 $job 2>/dev/null; do
  wait $job || true # the signal ends it too
done
wait $job
