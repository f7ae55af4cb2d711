#!/bin/sh
# What both recipes run in a bare Debian 12, in the folder that holds the repository. Usage: containers/install.sh cpu|gpu
# cpu: the default set. gpu: the set with vLLM for CUDA 13. The folder `environment` is the one that jobs use.
set -eu
set=${1:-cpu}
case $set in
  cpu) environments="env" used=.venv needed_once= compiler= ;;
  # Triton compiles on a GPU
  gpu) environments="env gpu-env" used=.venv-gpu needed_once=.venv compiler="gcc libc6-dev python3-dev" ;;
  *) echo "containers/install.sh: the set is $set; expected cpu or gpu" >&2; exit 1 ;;
esac

apt-get update
# procps: for people who look into a running job
apt-get install --yes --no-install-recommends ca-certificates git make procps python3 python3-venv $compiler
rm -rf /var/lib/apt/lists/*

# a copied working tree belongs to another user
git config --system --add safe.directory "$(pwd)"
make $environments PYTHON=python3
ln -s $used environment
rm -rf /root/.cache $needed_once
chmod -R a+rX .
