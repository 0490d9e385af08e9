"""The README.md of a model folder."""

import json
from pathlib import Path

import keras

import kerasbert


def write_card(folder: Path, title: str, data: dict, recipe: dict, metrics: dict, name: str = "README.md") -> None:
    """Writes a model card: what the model is, the data, the recipe, and what was measured."""
    lines = [
        "---",
        "library_name: kerasbert",
        "---",
        f"# {title}",
        "",
        f"Made with kerasbert {kerasbert.__version__} on Keras {keras.__version__}, {keras.backend.backend()}.",
        "",
        "```python",
        "import kerasbert",
        "",
        f'model = kerasbert.load("{Path(folder).name}")',
        "```",
    ]
    for heading, values in (("Data", data), ("Metrics", metrics), ("Recipe", recipe)):
        lines += ["", f"## {heading}", "", "| | |", "|---|---|"]
        lines += [f"| {key} | {_shown(value)} |" for key, value in values.items() if value is not None]
    (Path(folder) / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
