"""What the card of a fine-tuned model says beside the options, so that a reader can repeat the fine-tuning."""

from typing import Any

import keras

from kerasbert.retrieval.evaluation import is_embedder
from kerasbert.training import read_log

from ..reading.label_names import counted_labels
from .devices import described_device
from .finetuning import FineTuning, TaskData
from .losses import shown
from .task_models import longest_row

# The one that `FineTuning` compiles models with; its rates are settings of their own.
OPTIMIZER = "AdamW, whose rate rises to learning_rate in the warm-up and then falls to 0, both linearly"


def data_facts(source: str, data: TaskData) -> dict[str, Any]:
    """The source of the examples, their number, the columns that were read, and the number of texts of each label."""
    found: dict[str, Any] = {"source": source, "examples": data.num_examples}
    if data.columns is not None:
        found["columns"] = data.columns.described
    if others := data.num_examples - len(data.training):
        found["only for validation"] = others
    if data.labels and not isinstance(data.training.x[0], list):  # tags are not counted
        found["labels"] = counted_labels(data.labels, data.training)
    return found


def training_facts(tuning: FineTuning, model: keras.Model) -> dict[str, Any]:
    """Seeds, updates, optimizer, loss, vectors, length, dtype, minutes and device of a fine-tuning that is complete."""
    training, loss = tuning.training, tuning.data.objective
    first, *others = training.seeds
    last = next(reversed(read_log(tuning.logs_of(first))), {})
    seeds = {"seeds": f"{', '.join(map(str, training.seeds))}; this is the model of seed {first}"}
    return {
        **(seeds if others else {"seed": first}),
        "updates": last["step"] // training.accumulation if last else None,
        "optimizer": OPTIMIZER,
        **({} if loss is None else {"loss": shown(loss, whole=True)}),
        **vector_facts(model),
        "max_length": longest_row(model),
        "dtype": model.dtype_policy.name,
        "minutes": round(last["seconds"] / 60, 2) if last else None,
        "device": described_device(),
    }


def vector_facts(model: Any) -> dict[str, Any]:
    """Width, pooling and similarity of the vectors of an embedder; {} for other models."""
    if not is_embedder(model):
        return {}
    pooling = model.arguments().get("pooling")
    parts = [pooling] if isinstance(pooling, str) else pooling or []
    names = [part if isinstance(part, str) else part["name"] for part in parts]
    return {"width of vectors": model.embedding_dim, "pooling": ", ".join(names), "similarity": model.similarity_name}
