"""Records of the options of `finetune`, `evaluate` and `predict`."""

import math
from dataclasses import dataclass

from ..command_line.options import Options
from ..reading.tables import Format


@dataclass(frozen=True)
class Files(Options):
    """How files of examples are read.

    Args:
        format: format of the files. Default: by file extension and, for .txt, by content.
        encoding: encoding of the files.
    """

    format: Format = "auto"
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Generation(Options):
    """How answers are generated.

    Args:
        max_new_tokens: maximum length of generated answers, in tokens. `evaluate` and `predict` take it from the
            generation_config.json of the model, if it has one. Default: 64.
        num_beams: number of beams for generating answers. `evaluate` and `predict` take it from there, too. Default: 1.
    """

    max_new_tokens: int | None = None
    num_beams: int | None = None


@dataclass(frozen=True)
class Start(Options):
    """What is trained, and from which weights.

    Args:
        max_length: maximum number of tokens in texts, targets and windows. Default: the maximum of the model, but at
            most 512.
        text_to_text: train an encoder-decoder to generate the labels or answers, in the format of T5.
        from_scratch: start from random weights, for comparison.
        dtype: dtype policy, such as mixed_bfloat16.
        less_memory: recompute activations in the backward pass instead of storing them, which saves memory, but makes
            steps about a third slower.
    """

    max_length: int | None = None
    text_to_text: bool = False
    from_scratch: bool = False
    dtype: str | None = None
    less_memory: bool = False


@dataclass(frozen=True)
class Training(Options):
    """How long a model is trained, and which weights are kept.

    Args:
        epochs: passes over the data.
        batch_size: examples per step.
        accumulation: split each batch into this many parts, whose gradients are averaged, to save memory.
        seeds: seeds. One model is trained for each of them. The model of the first seed is saved.
        limit: use at most this many training and held-out examples each.
        validate_every: number of updates between validations. Each reads at most 1000 examples, and the number is
            rounded to a part of an epoch. Default: validation takes a tenth of the time, at most a fifth, and is done
            at least once per epoch.
        patience: stop training when the validation loss has not fallen for this many epochs. The weights with the
            lowest loss are restored. A tenth of the training examples is then used for validation only.
        keep_best: train to the end, then restore the weights with the lowest validation loss. A tenth of the training
            examples is then used for validation only.
        balanced: give all classes the same total weight in the loss.
        checkpoints: save the state of the run in the folder `checkpoints` of the output, so that the same command
            continues it after an interruption. The folder is deleted when the run is complete.
    """

    epochs: int = 3
    batch_size: int = 32
    accumulation: int = 1
    seeds: tuple[int, ...] = (0,)
    limit: int | None = None
    validate_every: int | None = None
    patience: int | None = None
    keep_best: bool = False
    balanced: bool = False
    checkpoints: bool = False

    def __post_init__(self):
        if self.checkpoints and self.chooses:  # the best weights so far are in no checkpoint
            raise ValueError(
                "`checkpoints` cannot be combined with `patience` or `keep_best`. Received: both. Leave one out."
            )
        for name in ("epochs", "batch_size", "accumulation", "limit", "validate_every"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {number}.")
        if not self.seeds:
            raise ValueError("`seeds` must be at least 1. Received: 0.")

    @property
    def chooses(self) -> bool:
        """Whether the weights with the lowest validation loss are kept."""
        return self.patience is not None or self.keep_best


@dataclass(frozen=True)
class Optimizer(Options):
    """The rates of AdamW.

    Args:
        learning_rate: peak learning rate. It is reached after the warm-up, and then the rate decays to 0. Default: by
            the width of the model, 3e-4 (up to 256), 1e-4 (512), 5e-5 (768) or 2e-5; embedders and rerankers: 5e-5.
            With --lora.rank, ten times as high.
        warmup_share: length of the warm-up, as a share of all steps.
        weight_decay: weight decay of AdamW.
        layer_decay: ratio of a layer's learning rate to that of the layer above. ELECTRA's base model uses 0.8.
    """

    learning_rate: float | None = None
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float | None = None

    def __post_init__(self):
        rate, layer_decay = self.learning_rate, self.layer_decay
        for name, is_right, bounds in (
            ("learning_rate", rate is None or 0 < rate < math.inf, "above 0"),
            ("warmup_share", 0 <= self.warmup_share <= 1, "between 0 and 1"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "at least 0"),
            ("layer_decay", layer_decay is None or 0 < layer_decay <= 1, "above 0 and at most 1"),
        ):
            if not is_right:
                raise ValueError(f"`{name}` must be {bounds}. Received: {getattr(self, name)}.")
