"""Fine-tuning as it is done with transformers: its models, its losses, its schedule, PyTorch's AdamW."""

from pathlib import Path

import numpy as np

CLASSES = {
    "score": "AutoModelForSequenceClassification",
    "classes": "AutoModelForSequenceClassification",
    "tags": "AutoModelForTokenClassification",
    "questions": "AutoModelForQuestionAnswering",
    "choices": "AutoModelForMultipleChoice",
}
PROBLEMS = {"score": "regression", "classes": "single_label_classification"}


def train(
    kind: str,
    labels: list[str] | None,
    folder: Path,
    output: Path,
    batches,
    rate: float,
    seed: int,
    warmup: int,
    steps: int,
    weight_decay: float,
) -> None:
    """Fine-tunes a folder on the batches of a task, and saves it with its tokenizer.

    Args:
        kind: of the task.
        labels: their names; of "classes" and "tags".
        folder, output: of transformers.
        batches: a `Batches` of kerasbert: numpy alone. Rows of padding are dropped, targets without weight are -100.
        rate, warmup, steps, weight_decay: linear warm-up and decay; biases and normalizations do not decay.
        seed: of the new head and of dropout.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    options = {}
    if kind in ("score", "classes"):
        options["problem_type"] = PROBLEMS[kind]
    if kind == "score":
        options["num_labels"] = 1
    elif labels:
        options["id2label"] = dict(enumerate(labels))
        options["label2id"] = {label: i for i, label in enumerate(labels)}
    model = getattr(transformers, CLASSES[kind]).from_pretrained(folder, **options).train()
    decayed, kept = [], []
    for name, parameter in model.named_parameters():
        (kept if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    groups = [dict(params=decayed, weight_decay=weight_decay), dict(params=kept, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    for batch in batches:
        loss = model(**{key: torch.from_numpy(array) for key, array in inputs_of(kind, *batch).items()}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.save_pretrained(output)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(output)


def inputs_of(kind: str, x: dict, y, weights) -> dict[str, np.ndarray]:
    """A batch as transformers names it."""
    lengths = x["lengths"]
    real = lengths.reshape(len(lengths), -1).any(axis=1)  # rows that are no padding
    ids = x["token_ids"]
    inputs = {"input_ids": ids, "attention_mask": (np.arange(ids.shape[-1]) < lengths[..., None])}
    if "segment_ids" in x:
        inputs["token_type_ids"] = x["segment_ids"]
    if kind == "questions":
        inputs |= {"start_positions": y["start"], "end_positions": y["end"]}
    else:
        inputs["labels"] = np.where(weights > 0, y, -100) if kind == "tags" else y
    kinds = {"labels": "float32"} if kind == "score" else {}
    return {key: array[real].astype(kinds.get(key, "int64")) for key, array in inputs.items()}
