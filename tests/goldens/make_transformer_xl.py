"""Makes `transformer_xl/`: tiny folders that transformers 4 wrote, and what its models answer on two segments.

    python tests/goldens/make_transformer_xl.py

Version 4.49 is the last one with this family. The tests that read the folders need neither it nor torch. The other
files there, `official_*.safetensors`, were made with the authors' own code (kimiyoung/transformer-xl, PyTorch).
"""

from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent / "transformer_xl"
SIZES = dict(vocab_size=61, d_model=24, n_layer=2, n_head=3, d_head=6, d_inner=40, layer_norm_epsilon=1e-4)

# name -> (class of transformers, its config)
CASES = {
    "clusters": (
        "TransfoXLLMHeadModel",
        dict(cutoffs=[20, 40], div_val=2, d_embed=16, mem_len=7, same_length=True, clamp_len=6, untie_r=True),
    ),
    "one_width": (
        "TransfoXLLMHeadModel",
        dict(cutoffs=[9, 33], div_val=1, d_embed=16, mem_len=7, same_length=False, clamp_len=-1, untie_r=False,
             pre_lnorm=True, proj_share_all_but_first=False),
    ),
    "shared": ("TransfoXLLMHeadModel", dict(cutoffs=[30], div_val=1, d_embed=16, mem_len=5, untie_r=False)),
    "one_softmax": ("TransfoXLLMHeadModel", dict(cutoffs=[], div_val=1, d_embed=24, mem_len=9, untie_r=True)),
    "classifier": (
        "TransfoXLForSequenceClassification",
        dict(cutoffs=[20], div_val=2, d_embed=24, mem_len=7, pad_token_id=60, num_labels=5),
    ),
}  # fmt: skip

# Its code names an argument of `type_as` as torch does not.
_type_as = torch.Tensor.type_as
torch.Tensor.type_as = lambda x, other=None, dtype=None: x.to(dtype) if other is None else _type_as(x, other)


def make(name: str) -> None:
    class_name, settings = CASES[name]
    torch.manual_seed(0)
    cls = getattr(transformers, class_name)
    model = cls(cls.config_class(**SIZES, **settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.randn_like(parameter) * 0.2).half().float())
    ids = np.random.default_rng(0).integers(0, 60, (2, 10))
    golden, memory = {"token_ids": ids.astype("int32")}, None
    for number, segment in enumerate((ids[:, :4], ids[:, 4:])):
        with torch.no_grad():
            outputs = model(input_ids=torch.from_numpy(segment), mems=memory, output_hidden_states=True)
        memory = outputs.mems
        golden[f"hidden_{number}"] = outputs.hidden_states[-1].numpy()
        golden[f"logits_{number}"] = outputs.logits.numpy()
    if getattr(model.config, "untie_r", True):
        model.half().save_pretrained(HERE / name)
    else:  # which it refuses to write as safetensors, and writes whole otherwise
        model.config.architectures = [class_name]
        model.config.save_pretrained(HERE / name)
        whole = {key: tensor.clone().numpy() for key, tensor in model.half().state_dict().items()}
        save_file(whole, HERE / name / "model.safetensors")
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    save_file({key: np.ascontiguousarray(value) for key, value in golden.items()}, HERE / name / "golden.safetensors")


if __name__ == "__main__":
    for case in CASES:
        make(case)
