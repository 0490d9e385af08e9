"""Makes the goldens of `huggingface/`: tiny folders that transformers wrote, and what its models answer.

    python tests/goldens/make_huggingface.py [NAME ...]

One folder a family: config.json and model.safetensors of a class with a head, from random weights, in half precision so
that they stay small, and golden.safetensors with the inputs and the outputs in float32. Needs transformers and torch;
the tests that read the folders need neither.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent / "huggingface"
SIZES = dict(
    vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=23,
)  # fmt: skip

# name -> (class of transformers, its config, does it take token types)
CASES = {
    "bert": ("BertForPreTraining", dict(SIZES, hidden_act="gelu_new", layer_norm_eps=1e-7), True),
    "roberta": ("RobertaForMaskedLM", dict(SIZES, type_vocab_size=1, pad_token_id=1, bos_token_id=0), False),
    "albert": (
        "AlbertForPreTraining",
        dict(SIZES, embedding_size=10, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2),
        True,
    ),
    "electra": ("ElectraForMaskedLM", dict(SIZES, embedding_size=10), True),
    "modernbert": (
        "ModernBertForMaskedLM",
        dict(SIZES, local_attention=8, pad_token_id=4, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
        False,
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        dict(vocab_size=61, dim=24, n_layers=3, n_heads=3, hidden_dim=40, max_position_embeddings=23),
        False,
    ),
    "mobilebert": (
        "MobileBertForPreTraining",
        dict(SIZES, embedding_size=10, intra_bottleneck_size=12, num_feedforward_networks=3),
        True,
    ),
    "deberta": (
        "DebertaForMaskedLM",
        dict(SIZES, relative_attention=True, pos_att_type="c2p|p2c", position_biased_input=False, type_vocab_size=2),
        True,
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        dict(
            **dict(SIZES, relative_attention=True, pos_att_type="p2c|c2p", position_biased_input=False, legacy=False),
            **dict(position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm", conv_kernel_size=3),
        ),
        False,
    ),
    "t5": (
        "T5ForConditionalGeneration",
        dict(
            **dict(vocab_size=61, d_model=24, d_kv=5, d_ff=40, num_layers=2, num_decoder_layers=1, num_heads=3),
            **dict(feed_forward_proj="gated-gelu", relative_attention_num_buckets=8, relative_attention_max_distance=9),
        ),
        False,
    ),
    "xlnet": ("XLNetLMHeadModel", dict(vocab_size=61, d_model=24, n_layer=3, n_head=3, d_inner=40), True),
    "xlm": (
        "XLMWithLMHeadModel",
        dict(vocab_size=61, emb_dim=24, n_layers=3, n_heads=3, max_position_embeddings=23, n_langs=1),
        False,
    ),
}


def make(name: str) -> None:
    class_name, settings, token_types = CASES[name]
    torch.manual_seed(0)
    cls = getattr(transformers, class_name)
    model = cls(cls.config_class(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.randn_like(parameter) * 0.2).half().float())
    rng = np.random.default_rng(0)
    pad = model.config.pad_token_id
    ids = rng.integers(6, 61, (2, 11))
    mask = np.arange(11) < np.array([[11], [7]])
    ids = np.where(mask, ids, pad)
    inputs = {"input_ids": ids, "attention_mask": mask.astype("int64")}
    if token_types:
        inputs["token_type_ids"] = rng.integers(0, 2, ids.shape)
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = rng.integers(6, 61, (2, 8))
    with torch.no_grad():
        outputs = model(**{key: torch.from_numpy(value) for key, value in inputs.items()})
    found = {key: value.numpy() for key, value in outputs.items() if "logits" in key}
    model.half().save_pretrained(HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    golden = {f"input/{key}": value.astype("int32") for key, value in inputs.items()}
    save_file(
        golden | {f"output/{key}": np.ascontiguousarray(value) for key, value in found.items()},
        HERE / name / "golden.safetensors",
    )


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case)
