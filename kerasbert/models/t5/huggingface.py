"""T5 in the Hugging Face layout: names and config fields that a plain table cannot convert."""

import numpy as np

# === Fields ===


def load_gated(stored):
    return stored["feed_forward_proj"].startswith("gated-")


def load_activation(stored):
    name = stored["feed_forward_proj"].removeprefix("gated-")
    return "gelu_new" if stored["feed_forward_proj"] == "gated-gelu" else name


def load_scale_output(stored):
    """Whether outputs are scaled: version 5 of transformers never scales mT5 and has a field for T5; earlier versions
    scaled only tied outputs.

    umT5 was trained by the earlier rule, which holds here, too, although version 5 scales it whatever the config says.
    """
    never = stored["model_type"].startswith("mt5")
    return not never and stored.get("scale_decoder_outputs", stored["tie_word_embeddings"])


def save_feed_forward(config):
    name = "gelu" if config.gated and config.activation == "gelu_new" else config.activation
    return f"gated-{name}" if config.gated else name


def load_architecture(stored):
    encoder = not stored["is_encoder_decoder"] or (stored.get("architectures") or [""])[0].endswith("EncoderModel")
    return stored.get("architecture") or ("encoder" if encoder else "encoder_decoder")


def save_model_type(config):
    """Language models have a separate `model_type`, because transformers has no decoder-only T5."""
    return f"{config.model_type}-lm" if config.architecture.endswith("language_model") else config.model_type


def huggingface_fields(weights):
    """Fields inferred from the tensors: version 5 of transformers writes that outputs are tied even if they are not."""
    if "lm_head.weight" not in weights or "shared.weight" not in weights:
        return {}
    return {"tied_output": np.array_equal(weights.read("lm_head.weight"), weights.read("shared.weight"))}


# === Names ===

# (our name, their name), in the order in which a block numbers its sublayers; the feed-forward layer comes last.
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
    """The name table of one half, `encoder` or `decoder`."""
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
    """{encoder's name: decoder's name} of halves that share weights; transformers needs both names."""
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
    """Whether a tensor is of the half that this architecture lacks, or the unused table in files of the first T5."""
    left_out = config.architecture == "encoder" and name.startswith("decoder.")
    return left_out or name.endswith("EncDecAttention.relative_attention_bias.weight")
