"""Names that families of checkpoints have for their modules, if they are not those of Llama's kin.

Sources: the modelling code of transformers 5 and of the models' own repositories, and the names in lists of quantised
checkpoints. What is missing here is found by words (`module_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.specs.modules import COMMON_PATHS


class ModuleNames(NamedTuple):
    """Names of the modules of a family."""

    modules: Mapping[str, str] = {}
    """Beginning of a module's name in Llama's kin -> what is there instead; the first that fits counts."""
    layer_path: str = ""
    """Path before the number of a layer, where it is none of the usual ones."""
    head: str = "lm_head"
    table: str = "model.embed_tokens"

    @property
    def layer_paths(self) -> tuple[str, ...]:
        """Paths before the number of a layer that checkpoints may have."""
        own = (self.layer_path,) if self.layer_path else ()
        return (*own, *COMMON_PATHS)

    def name_of(self, module: str) -> str:
        """The name that a module of Llama's kin has in this family."""
        for begin, other in self.modules.items():
            if module == begin or module.startswith(f"{begin}."):
                return f"{other}{module[len(begin) :]}"
        return module


def _numbered(begin: str, holder: str, gate: str, up: str, down: str) -> dict[str, str]:
    """Names of the three matrices of an MLP below `holder`, in place of those below `begin`."""
    return {
        f"{begin}.gate_proj": f"{holder}.{gate}",
        f"{begin}.up_proj": f"{holder}.{up}",
        f"{begin}.down_proj": f"{holder}.{down}",
    }


def _experts(holder: str) -> dict[str, str]:
    """Names of experts as Mixtral has them."""
    return _numbered("mlp.experts.{}", f"{holder}.experts.{{}}", "w1", "w3", "w2")


def _fused(attention: str, fused: str, output: str, linear: str = "") -> dict[str, str]:
    """Names of an attention with one matrix for queries, keys and values."""
    queries_keys_and_values = {f"self_attn.{letter}_proj": f"{attention}.{fused}" for letter in "qkv"}
    return {**queries_keys_and_values, "self_attn.o_proj": f"{attention}.{output}", "self_attn": linear or attention}


_SPARSE_MOE: Final = {**_experts("block_sparse_moe"), "mlp.gate": "block_sparse_moe.gate"}
_FEED_FORWARD: Final = {
    "mlp.gate": "feed_forward.router",
    "mlp.shared_experts": "feed_forward.shared_expert",
    "mlp": "feed_forward",
}
_W123: Final = {
    **_experts("feed_forward"),
    **_numbered("mlp", "feed_forward", "w1", "w3", "w2"),
    "mlp": "feed_forward",
}
_GRANITE: Final = {
    **_numbered("mlp.experts.{}", "block_sparse_moe", "input_linear", "input_linear", "output_linear"),
    **_numbered("mlp.shared_experts", "shared_mlp", "input_linear", "input_linear", "output_linear"),
    **_numbered("shared_mlp", "shared_mlp", "input_linear", "input_linear", "output_linear"),
    "mlp.gate": "block_sparse_moe.router.layer",
}
_MIXER: Final = {"self_attn": "mixer", "mamba": "mixer", "mlp": "mixer"}
_FOUR_H: Final = _numbered("mlp", "mlp", "dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h")
_FC: Final = _numbered("mlp", "mlp", "c_fc", "c_fc", "c_proj")
_BY_FAMILY: Final = {
    "mixtral phimoe minimax minimax_m1 minimax_text_01 minimax_m2": ModuleNames(_SPARSE_MOE),
    "kimi_linear": ModuleNames(
        {**_SPARSE_MOE, "mlp.shared_experts": "block_sparse_moe.shared_experts"},
    ),
    "llama4 llama4_text": ModuleNames(_FEED_FORWARD),
    "jamba falcon_h1": ModuleNames(_FEED_FORWARD),
    "granitemoe granitemoeshared granitemoehybrid granitemoe_swa": ModuleNames(_GRANITE),
    "gpt_oss": ModuleNames({"mlp.gate": "mlp.router"}),
    "gemma4 gemma4_text gemma4_unified_text": ModuleNames({"mlp.gate": "router.proj", "mlp.experts": "experts"}),
    "deepseek_v4 deepseek_ref deepseek_v41 deepseek_v41_text": ModuleNames(
        {
            **_experts("ffn"),
            **_numbered("mlp.shared_experts", "ffn.shared_experts", "w1", "w3", "w2"),
            "self_attn.q_a_proj": "attn.wq_a",
            "self_attn.q_b_proj": "attn.wq_b",
            "self_attn.kv_proj": "attn.wkv",
            "self_attn.o_a_proj": "attn.wo_a",
            "self_attn.o_b_proj": "attn.wo_b",
            "self_attn": "attn",
            "mlp": "ffn",
        },
        "layers.",
        "head",
        "embed",
    ),
    "nemotron_h": ModuleNames(_MIXER, "backbone.layers.", table="backbone.embeddings"),
    "mamba mamba2 falcon_mamba": ModuleNames(_MIXER, "backbone.layers.", table="backbone.embeddings"),
    "lfm2 lfm2_moe lfm3": ModuleNames({**_W123, "self_attn.o_proj": "self_attn.out_proj"}),
    "internlm2 internlm3": ModuleNames({**_W123, **_fused("attention", "wqkv", "wo")}),
    "bailing_moe bailing_moe_v2 bailing_moe_linear bailing_hybrid": ModuleNames(
        _fused("attention", "query_key_value", "dense"), table="model.word_embeddings"
    ),
    "hunyuan_v1_moe": ModuleNames({"mlp.gate": "mlp.gate.wg", "mlp.shared_experts": "mlp.shared_mlp"}),
    "step3_text": ModuleNames({"mlp.gate": "moe.gate", "mlp.experts": "moe", "mlp.shared_experts": "share_expert"}),
    "chatglm": ModuleNames(
        {**_fused("self_attention", "query_key_value", "dense"), **_FOUR_H}, "transformer.encoder.layers."
    ),
    "gpt2 gpt_bigcode": ModuleNames({**_fused("attn", "c_attn", "c_proj"), **_FC}, "transformer.h."),
    "starcoder2": ModuleNames(_FC),
    "gpt_neox": ModuleNames({**_fused("attention", "query_key_value", "dense"), **_FOUR_H}, "gpt_neox.layers."),
    "bloom falcon RefinedWeb RefinedWebModel": ModuleNames(
        {**_fused("self_attention", "query_key_value", "dense"), **_FOUR_H}, "transformer.h."
    ),
    "qwen": ModuleNames(
        {**_fused("attn", "c_attn", "c_proj"), **_numbered("mlp", "mlp", "w2", "w1", "c_proj")}, "transformer.h."
    ),
    "mpt": ModuleNames({**_fused("attn", "Wqkv", "out_proj"), "mlp": "ffn"}, "transformer.blocks."),
    "dbrx": ModuleNames(
        {
            **_fused("norm_attn_norm.attn", "Wqkv", "out_proj"),
            **_numbered("mlp.experts.{}", "ffn.experts.mlp", "w1", "v1", "w2"),
            "mlp.gate": "ffn.router.layer",
        },
        "transformer.blocks.",
    ),
    "opt": ModuleNames(
        {**_numbered("mlp", "mlp", "fc1", "fc1", "fc2"), "self_attn.o_proj": "self_attn.out_proj"},
        "model.decoder.layers.",
    ),
    "phi": ModuleNames({**_numbered("mlp", "mlp", "fc1", "fc1", "fc2"), "self_attn.o_proj": "self_attn.dense"}),
    "baichuan": ModuleNames({f"self_attn.{letter}_proj": "self_attn.W_pack" for letter in "qkv"}),
}
"""Names of architectures (`model_type`), with blanks between -> names of their modules."""

_USUAL: Final = ModuleNames()
_BY_TYPE: Final = {model_type: names for types, names in _BY_FAMILY.items() for model_type in types.split()}


def module_names(model_type: str) -> ModuleNames:
    """The names of the modules of an architecture."""
    return _BY_TYPE.get(model_type, _USUAL)
