"""Makes small models with random weights: Llama with 0.02e9 and 0.2e9 parameters, in Hugging Face format and as GGUF.

    VLLM_VENV/bin/python tests/real/models.py FOLDER [GGUF_PY]

Runs with vLLM's packages (torch, transformers, tokenizers); GGUF_PY is llama.cpp's gguf-py folder, no GGUF without it.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any, Final

SIZES: Final[dict[str, dict[str, int]]] = {
    "tiny-llama": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "small-llama": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
}
VOCABULARY: Final = 32000
CONTEXT: Final = 2048
SPECIAL: Final = ("<s>", "</s>", "<unk>", "<pad>")
CHAT: Final = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}<s>assistant "
LAYER: Final = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
"""GGUF's name of a layer's weight -> Hugging Face's."""
WHOLE: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def tokenizer(vocabulary: int = VOCABULARY, context: int = CONTEXT) -> Any:
    """A byte-level BPE tokenizer over made-up words, of exactly `vocabulary` tokens."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    chance = random.Random(1)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(6000)]
    made = Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([" ".join(chance.choices(words, k=20)) for _ in range(4000)], trainer)
    made.add_tokens([f"wq{at}x" for at in range(vocabulary - made.get_vocab_size())])
    names = dict(zip(("bos_token", "eos_token", "unk_token", "pad_token"), SPECIAL, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=context, **names)
    fast.chat_template = CHAT
    return fast


def hugging_face(into: Path, size: dict[str, int], words: Any) -> None:
    """A model with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=3,
        tie_word_embeddings=False,
        **size,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(into)
    words.save_pretrained(into)


def as_gguf(model: Path, into: Path) -> None:
    """The same model for llama.cpp, in 16 bit."""
    import gguf
    import torch
    from safetensors.torch import load_file

    config = json.loads((model / "config.json").read_text())
    weights = load_file(model / "model.safetensors")
    writer = gguf.GGUFWriter(into, "llama")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_name(model.name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _add_tokenizer(writer, json.loads((model / "tokenizer.json").read_text()))

    def add(name: str, source: str, turned: int = 0) -> None:
        weight = weights[f"{source}.weight"]
        # llama.cpp's rotary embedding pairs neighbours, Hugging Face's pairs the halves of a head.
        if turned:
            shape = weight.shape
            weight = weight.reshape(turned, 2, shape[0] // turned // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
        writer.add_tensor(f"{name}.weight", weight.to(torch.float32 if "norm" in name else torch.float16).numpy())

    for name, source in WHOLE.items():
        add(name, source)
    for at in range(config["num_hidden_layers"]):
        for name, source in LAYER.items():
            add(f"blk.{at}.{name}", f"model.layers.{at}.{source}", {"attn_q": heads, "attn_k": kv_heads}.get(name, 0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, words: dict[str, Any]) -> None:
    import gguf

    tokens = [""] * VOCABULARY
    types = [gguf.TokenType.NORMAL] * VOCABULARY
    for token, at in words["model"]["vocab"].items():
        tokens[at] = token
    for added in words["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in words["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_pad_token_id(3)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)


def main() -> None:
    """Make all sizes."""
    into = Path(sys.argv[1])
    with_gguf = len(sys.argv) > 2 and Path(sys.argv[2]).is_dir()
    if with_gguf:
        sys.path.insert(0, sys.argv[2])
    into.mkdir(parents=True, exist_ok=True)
    words = tokenizer()
    for name, size in SIZES.items():
        hugging_face(into / name, size, words)
        if with_gguf:
            (into / "gguf").mkdir(exist_ok=True)
            as_gguf(into / name, into / "gguf" / f"{name}.gguf")


if __name__ == "__main__":
    main()
