"""The engines' own parsers of command lines: which options they have, and how many words each takes.

`make parsers WHEELS=FOLDER` runs it in the venv of the oracle (torch and transformers; nothing of gpumon is imported).
The folder has the newest wheels of vllm and sglang, the sdist of llama-cpp-python (it has llama.cpp in it), and
TGI's launcher/src/main.rs as tgi.rs; what is not there keeps the rows that it had. Of vLLM and SGLang the real
argparse is built, with stand-ins for packages that are not installed; of llama.cpp and TGI the source is read.

Written: gpumon/specs/data/engine_parsers.tsv, and tests/data/engine_parsers.jsonl with what the real argparse makes of
the lines in tests/engine_parsers/lines.txt.
"""
