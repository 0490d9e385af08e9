"""The columns that a model was trained on. `finetune` keeps them in metrics.json for `predict` and `evaluate`."""

import json
from pathlib import Path

from ..reading.labeled import GUESSED, Columns, TrainedColumns
from ..reading.tables import ColumnsRead

PARTS = ("text", "pair", "label")


def named_columns(read: ColumnsRead | None) -> dict[str, str]:
    """{part of `Columns`: name}, or {} if the columns have no names, or if there are more than two of texts."""
    if read is None or len(read.texts) > 2 or any(str(name).isdecimal() for name in (*read.texts, read.label)):
        return {}
    names = {**dict(zip(PARTS, read.texts, strict=False)), "label": read.label}
    return {part: str(name) for part, name in names.items() if name is not None}


def columns_for(model: str, asked: Columns, usual: Columns) -> Columns:
    """Returns the columns to read: those that the user names, or those of the task, or those of the model's training.

    Args:
        model: folder of the model, or hf://org/name.
        asked: the columns that the user names.
        usual: the columns of the task that the user names.
    """
    given = next((columns for columns in (asked, usual) if columns != GUESSED), None)
    if given is not None:
        return given
    folder = Path(model)
    if model.startswith("hf://"):
        from kerasbert.checkpoints.folder import find_folder  # imports Keras, which an export in a folder does not need

        folder = find_folder(model)
    file = folder / "metrics.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    columns = kept.get("columns") if isinstance(kept, dict) else None
    return TrainedColumns(*map(columns.get, PARTS)) if columns else GUESSED
