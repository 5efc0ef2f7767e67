"""Parameters by what a token does with them, counted on the meta device at full size."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import torch

from tests.oracle.configs import Source
from tests.oracle.model import CAUSAL, ENCODERS, Language, build, read_config

_ROUTED = re.compile(r"(^|[._])experts([._]|$)")
_EXPERTS = (
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "moe_num_primary_experts",
)  # fmt: skip
_CHOSEN = (
    "num_experts_per_tok", "num_experts_per_token", "moe_num_experts_per_tok", "top_k_experts", "moe_topk", "moe_top_k",
    "moe_k", "experts_per_token", "num_selected_experts", "moe_num_active_primary_experts", "zaya_moe_topk",
)  # fmt: skip
_KEYS_AND_VALUES = ("k_proj", "v_proj", "kv_a_proj_with_mqa")
_OF_ENCODER = re.compile(r"(^|\.)encoder_attn\.[kv]_proj\.")


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters of one model's language part.

    `matmul` weights are multiplied (a tied head counts here though its weight is the input table), `lookup` weights are
    read one row a token, `once` are those that make keys and values of an encoder's output, once per request,
    `vectors` are norms, biases and gains, `convolutions` the short depthwise kernels. Weights that several layers share
    are in `params` once and in `repeated` once more for each further use (of Zamba 2's adapters each layer has its
    own). `active` is what one token meets: all but the look-up tables, what is multiplied once, and the experts that it
    isn't routed to.
    """

    params: int
    matmul: int
    experts_routed: int
    input_table: int
    other_lookup: int
    vectors: int
    convolutions: int
    once: int
    repeated: int
    tied: bool
    experts: int
    experts_per_token: int
    layers: int
    kv_projection_width: int

    @property
    def active_matmul(self) -> int:
        if not self.experts:
            return self.matmul + self.repeated
        return self.matmul + self.repeated - round(self.experts_routed * (1 - self.experts_per_token / self.experts))

    @property
    def active(self) -> int:
        """With norms, biases and convolutions; biases of experts all, they are small."""
        return self.active_matmul + self.vectors + self.convolutions


def count(language: Language) -> Parameters:
    table = language.input_table
    experts = _first(language, _EXPERTS)
    seen: set[int] = set()
    sums = dict.fromkeys(("matmul", "experts", "other_lookup", "vectors", "convolutions", "once", "repeated"), 0)
    multiplied_table = False
    kv_width = 0
    for part in language.parts:
        for module_name, module in part.named_modules(remove_duplicate=False):
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                kind = _kind(module, f"{module_name}.{name}", parameter, experts)
                if parameter is table:
                    multiplied_table |= not isinstance(module, torch.nn.Embedding)
                    continue
                if id(parameter) in seen:
                    if kind in ("matmul", "experts") and "adapter" not in module_name:
                        sums["repeated"] += parameter.numel()
                    continue
                seen.add(id(parameter))
                sums[kind] += parameter.numel()
                if "albert_layer_groups" in module_name and kind == "matmul":
                    passes = language.config.num_hidden_layers // language.config.num_hidden_groups
                    sums["repeated"] += parameter.numel() * (passes - 1)
                if parameter.ndim == 2 and module_name.rsplit(".", 1)[-1] in _KEYS_AND_VALUES:
                    kv_width += parameter.shape[0]
    tied = multiplied_table
    size = table.numel()
    return Parameters(
        params=sum(sums[kind] for kind in ("matmul", "experts", "other_lookup", "vectors", "convolutions", "once"))
        + size,
        matmul=sums["matmul"] + sums["experts"] + (size if tied else 0),
        experts_routed=sums["experts"],
        input_table=size,
        other_lookup=sums["other_lookup"],
        vectors=sums["vectors"],
        convolutions=sums["convolutions"],
        once=sums["once"],
        repeated=sums["repeated"],
        tied=tied,
        experts=experts if sums["experts"] else 0,
        experts_per_token=_chosen(language, experts) if sums["experts"] else 0,
        layers=_first(language, ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")),
        kv_projection_width=kv_width,
    )


def _kind(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter, experts: int) -> str:
    leaf = name.rsplit(".", 1)[-1]
    if isinstance(module, torch.nn.Embedding) or ("embed" in type(module).__name__.lower() and parameter.ndim == 2):
        return "other_lookup"
    if isinstance(module, torch.nn.Conv1d | torch.nn.Conv2d):
        return "convolutions" if leaf == "weight" else "vectors"
    if parameter.ndim < 2 or "bias" in leaf or leaf == "A_log" or "norm" in type(module).__name__.lower():
        return "vectors"
    if _OF_ENCODER.search(name):
        return "once"
    path = name.replace("shared_experts", "shared").replace("shared_expert", "shared")
    if _ROUTED.search(path) or (experts > 1 and parameter.ndim == 3 and parameter.shape[0] == experts):
        return "experts"
    return "matmul"


def _chosen(language: Language, experts: int) -> int:
    """Experts that a token goes through: where some of the chosen ones are identities, the mean if routed evenly."""
    identities = _first(language, ("zero_expert_num",))
    return _first(language, _CHOSEN) * experts // (experts + identities)


def _first(language: Language, names: tuple[str, ...]) -> int:
    for source in (language.config, getattr(language.config, "ffn_config", None)):
        for name in names:
            value = getattr(source, name, None)
            if isinstance(value, list):
                value = value[0] if value else None
            if value:
                return int(value)
    return 0


def rows(sources: Iterable[Source]) -> Iterator[dict[str, object]]:
    """parameters.csv: one row a model; encoders that also exist as causal LMs have a second row for that class."""
    for source in sources:
        name = str(source.config.get("model_type"))
        encoder = source.kind == "defaults" and name in ENCODERS
        for bare in (True, False) if encoder and name in CAUSAL else (encoder,):
            yield _row(source, bare)


def _row(source: Source, encoder: bool) -> dict[str, object]:
    row: dict[str, object] = {"id": source.id, "kind": source.kind, "model_type": source.config.get("model_type")}
    try:
        language = build(read_config(source.config), encoder)
        counted = count(language)
    except Exception as error:  # whatever the model's code raises is the reason why it isn't counted
        reason = f"not counted: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return row | dict.fromkeys(_COLUMNS, "") | {"note": "; ".join(filter(None, (source.note, reason)))}
    values = {"class": language.class_name, "text_model_type": language.config.model_type} | asdict(counted)
    values |= {"tied": int(counted.tied), "active_matmul": counted.active_matmul, "active": counted.active}
    return (
        row
        | {column: values[column] for column in _COLUMNS}
        | {"note": "; ".join(filter(None, (source.note, _NOTES.get(language.config.model_type))))}
    )


_NOTES = {
    "ernie4_5_vl_moe_text": "a second set of experts is for images, of another width: active_matmul is too high",
    "hrm_text": "its layers run several times a token: active_matmul is each once",
    "longcat_flash": "of the chosen experts the identities are left out, 1 in 3 if routed evenly",
    "mllama": "cross-attention does nothing without an image: active_matmul counts it",
    "whisper": "a decoder of what an encoder makes: its queries and output projections to it are in matmul",
} | dict.fromkeys(
    (
        "bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "marian",
        "mbart",
        "mvp",
        "pegasus",
        "plbart",
        "trocr",
    ),
    "the decoder of a pair: queries and output projections of cross-attention are in matmul",
)
_COLUMNS = (
    "class", "text_model_type", "params", "matmul", "experts_routed", "input_table", "other_lookup", "vectors",
    "convolutions", "once", "repeated", "tied", "experts", "experts_per_token", "active_matmul", "active", "layers",
    "kv_projection_width",
)  # fmt: skip
