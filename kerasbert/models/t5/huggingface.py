"""T5 in the Hugging Face layout: weight names, and config fields that do not correspond to a single field here."""

import numpy as np

# === Fields ===


def load_gated(stored):
    """Whether feed-forward layers are gated, according to a config.json."""
    return stored["feed_forward_proj"].startswith("gated-")


def load_activation(stored):
    """Determines the name of the activation function from a config.json."""
    name = stored["feed_forward_proj"].removeprefix("gated-")
    return "gelu_new" if stored["feed_forward_proj"] == "gated-gelu" else name


def load_scale_output(stored):
    """Whether the input of the output layer is scaled, according to a config.json.

    transformers 4 scales it if the output layer shares the token embeddings. transformers 5 has a separate field for T5
    and, since version 5.24, for umT5, and never scales it for mT5.
    """
    never = stored["model_type"].startswith("mt5")
    return not never and stored.get("scale_decoder_outputs", stored["tie_word_embeddings"])


def save_feed_forward(config):
    """Returns the value of `feed_forward_proj` in config.json."""
    name = "gelu" if config.gated and config.activation == "gelu_new" else config.activation
    return f"gated-{name}" if config.gated else name


def load_architecture(stored):
    """Determines the architecture, one of `ARCHITECTURES`, from a config.json."""
    encoder = not stored["is_encoder_decoder"] or (stored.get("architectures") or [""])[0].endswith("EncoderModel")
    return stored.get("architecture") or ("encoder" if encoder else "encoder_decoder")


def save_model_type(config):
    """Returns the `model_type` for config.json, which ends with "-lm" for decoder-only models.

    transformers has no decoder-only T5. With the usual `model_type`, it would load such models as encoder-decoders.
    """
    return f"{config.model_type}-lm" if config.architecture.endswith("language_model") else config.model_type


def start_of_generation(stored, generation):
    """Returns the field of a config.json that a generation_config.json replaces, the id of the start token."""
    start = generation.get("decoder_start_token_id")
    return {} if start is None else {"decoder_start_token_id": start}


def huggingface_fields(weights):
    """Infers from the tensors whether the output layer equals the token embeddings. Returns {"tied_output": bool}.

    The config.json cannot be trusted: transformers 5 writes that the output layer is tied even if it is not.
    """
    if "lm_head.weight" not in weights or "shared.weight" not in weights:
        return {}
    return {"tied_output": np.array_equal(weights.read("lm_head.weight"), weights.read("shared.weight"))}


# === Names ===

# (our name, stored name) of the sublayers of a block, in the order of their numbers. Feed-forward is the last sublayer.
_ATTENTION, _CROSS_ATTENTION = ("attention", "SelfAttention"), ("cross_attention", "EncDecAttention")
_SUBLAYERS = {"encoder": [_ATTENTION], "decoder": [_ATTENTION, _CROSS_ATTENTION]}
_FEED_FORWARD = {
    "feed_forward/inner": "wi",
    "feed_forward/outer": "wo",
    "gated_feed_forward/inner": "wi_0",
    "gated_feed_forward/gate": "wi_1",
    "gated_feed_forward/outer": "wo",
}


def half_names(half):
    """Returns {our weight path: stored name} for one `half`, "encoder" or "decoder"."""
    names = {
        f"{half}/relative_bias_{{i}}": f"{half}.block.{{i}}.layer.0.SelfAttention.relative_attention_bias",
        f"{half}/final_norm": f"{half}.final_layer_norm",
    }
    for number, (ours, theirs) in enumerate(_SUBLAYERS[half]):
        layer = f"{half}.block.{{i}}.layer.{number}"
        names[f"{half}/block_{{i}}/{ours}_norm"] = f"{layer}.layer_norm"
        for dense, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("project", "o")):
            names[f"{half}/block_{{i}}/{ours}/{dense}"] = f"{layer}.{theirs}.{letter}"
    layer = f"{half}.block.{{i}}.layer.{len(_SUBLAYERS[half])}"
    names[f"{half}/block_{{i}}/feed_forward_norm"] = f"{layer}.layer_norm"
    for ours, theirs in _FEED_FORWARD.items():
        names[f"{half}/block_{{i}}/{ours}"] = f"{layer}.DenseReluDense.{theirs}"
    return names


def huggingface_implied(config):
    """Returns {stored name in the encoder: stored name in the decoder} if the two share weights.

    transformers needs both names.
    """
    if config.architecture != "shared":
        return {}
    decoder, absent = half_names("decoder"), "/feed_forward/" if config.gated else "/gated_feed_forward/"
    repeated = {}
    for ours, theirs in half_names("encoder").items():
        if absent not in ours:
            once = "{i}" not in ours or ("relative_bias" in ours and not config.bias_every_block)
            for i in range(1 if once else config.num_layers):
                source = decoder[ours.replace("encoder", "decoder")]
                repeated[f"{theirs.format(i=i)}.weight"] = f"{source.format(i=i)}.weight"
    return repeated


def huggingface_unused(config, name):
    """Whether a model ignores the tensor with this stored name.

    Encoders ignore the tensors of a decoder. All models ignore the distance table of cross-attention, which files of
    the first T5 contain although it was never used.
    """
    left_out = config.architecture == "encoder" and name.startswith("decoder.")
    return left_out or name.endswith("EncDecAttention.relative_attention_bias.weight")
