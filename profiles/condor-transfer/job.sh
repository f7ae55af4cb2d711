#!/usr/bin/env bash
# HTCondor starts this in an empty folder, to which it has copied what the job reads. Its arguments are those of
# `python -m snakemake`, for one rule. With ARC_REFINERY_IMAGE it runs in that image. Else ARC_REFINERY_ENVIRONMENT may
# name an archive of an environment: a path on the job's machine, or a file below this folder, which is copied, too.
set -eu

attribute() { sed -n "s/^$1 = \"\(.*\)\"$/\1/p" "$_CONDOR_JOB_AD" | tr ',' '\n' | sed 's/^ *//'; }
outputs=$(attribute TransferOutput)
folders=$(attribute TransferFolders)

# HTCondor keeps a job whose outputs are missing, also one that failed or was evicted: what is missing is put there, and
# taken away again where the job continues.
for path in $outputs; do
  if [ -f "$path" ] && [ ! -s "$path" ]; then rm "$path"; fi
  if [ -d "$path" ]; then rmdir --ignore-fail-on-non-empty "$path"; fi
done
fill() {
  for path in $outputs; do
    [ -e "$path" ] && continue
    if grep -qxF -- "$path" <<< "$folders"; then mkdir -p "$path"; else mkdir -p "$(dirname "$path")"; : > "$path"; fi
  done
}

trap fill EXIT

python=(python)
if [ -z "${ARC_REFINERY_IMAGE:-}" ] && [ -n "${ARC_REFINERY_ENVIRONMENT:-}" ]; then
  bin="$PWD/.arc-refinery-environment/bin"
  mkdir .arc-refinery-environment
  tar -xf "$ARC_REFINERY_ENVIRONMENT" -C .arc-refinery-environment
  rm -f "$bin/arc-refinery" # the one of a virtual environment names the folder of before
  printf '#!/bin/sh\nexec "$(dirname "$0")/python" -m arc_refinery "$@"\n' > "$bin/arc-refinery"
  chmod +x "$bin/arc-refinery"
  python=("$bin/python")
fi
export PYTHONPATH="$PWD/workflow"

# All that Snakemake has started is asked to end, too; sampling and training resume wherever the job starts next.
set -m
"${python[@]}" -m snakemake "$@" &
job=$!
trap 'kill -TERM -- -$job' TERM
while kill -0 $job 2> /dev/null; do
  wait $job || true # the signal ends it too
done
status=0
wait $job || status=$?
exit $status
