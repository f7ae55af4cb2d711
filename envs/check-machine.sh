#!/bin/sh
# Check this machine in a second, before `make env` downloads anything: Linux, CPython, free disk space, seccomp.
# Prints the path of the Python to use; all else goes to stderr. Usage: envs/check-machine.sh [python]
set -eu
python=${1:-python3}
versions="3.11 3.12 3.13" # that cpu.txt can be installed with; the first one is that of all sets in this folder
needed=3                  # GB; 6 with PyPI's build of torch, which has CUDA

fail() {
  printf 'arc-refinery: %s\n' "$1" >&2
  exit 1
}

version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none
}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
  fail "needs Linux on x86-64, this is $(uname -s) on $(uname -m). Use such a machine, a virtual one, or WSL on Windows"

fits() {
  case " $versions " in *" $(version_of "$1") "*) ;; *) return 1 ;; esac
}

found=$(version_of "$python")
if ! fits "$python" && [ "$python" = python3 ]; then # nobody chose it
  for version in $versions; do
    if fits "python$version"; then
      python=python$version
      break
    fi
  done
  if [ "$python" = python3 ] && command -v uv >/dev/null; then
    version=${versions%% *}
    python=$(uv python find "$version" 2>/dev/null || { uv python install --quiet "$version" >&2 && uv python find "$version"; }) ||
      fail "needs Python $version, and uv cannot install it: see above"
  fi
fi
fits "$python" ||
  fail "needs Python 3.11, 3.12 or 3.13, $python is $found. Name one: make env PYTHON=/path/to/python3.11; or install uv (docs.astral.sh/uv), which fetches it"
version=$(version_of "$python")
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "$python lacks venv and pip. Install them: apt install python$version-venv"
"$python" -c 'import os; assert not set(":\\\"$`{}\n") & set(os.getcwd().encode().decode())' 2>/dev/null ||
  fail 'environments cannot be made in this folder: its path has one of : \ " $ ` { }, a line break, or is not UTF-8. Move it'
made=$(version_of .venv/bin/python)
[ "$made" = none ] || [ "$made" = "$version" ] ||
  fail ".venv has Python $made, and $python is $version. Remove .venv, or type make env PYTHON=python$made"

free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
[ -d .venv ] || [ "$free" -ge $needed ] ||
  fail "needs $needed GB of disk space, 6 where torch is PyPI's; $(pwd) has $free GB. Free some, or move this folder"

# seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &SECCOMP_RET_ERRNO), as arc_refinery.sandbox.seccomp asks
"$python" -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(317, 2, 0, ctypes.byref(ctypes.c_uint32(0x50000))))' ||
  fail "needs seccomp, which keeps the model's programs in their sandbox; this kernel, or container, has none. Use another"

echo "Linux, Python $version ($python), $free GB free, seccomp: fine." >&2
command -v "$python"
