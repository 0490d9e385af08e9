"""Keeps some of the layers of a causal language model, which a short training then adapts to each other.

    python -m benchmarks.studies.shipped_models.fewer_layers --source runs/gpt2/model --layers 4 \
        --output runs/fewer_layers
    python -m pipelines.pretrain gpt2.mini_en_four_layers --corpus corpora/novels --run runs/four_layers \
        --set init_from=runs/fewer_layers

The layers are evenly spaced, with the first and the last among them, as for the students of DistilBERT (Sanh et al.
2019, section 3). Everything else is copied.
"""

import dataclasses
from pathlib import Path

import tyro

from kerasbert.objectives import CausalLM, start_from_teacher


def main(source: Path, output: Path, layers: int) -> None:
    """Writes a model with fewer layers.

    Args:
        source: folder of the model.
        output: folder for the new model.
        layers: number of layers to keep.
    """
    model = CausalLM.from_preset(source, dtype="float32")
    config = dataclasses.replace(model.backbone.config, num_layers=layers)
    fewer = CausalLM(type(model.backbone)(config), tokenizer=model.tokenizer)
    copied = start_from_teacher(fewer, model)
    missing = {variable.path.split("/", 1)[1] for variable in fewer.trainable_weights} - set(copied)
    if missing:
        raise ValueError(f"All weights must be copied. Received: a model without {', '.join(sorted(missing))}.")
    fewer.save_to_preset(output)


if __name__ == "__main__":
    tyro.cli(main)
