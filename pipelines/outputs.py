"""Writes the output files of a command: atomically, and never over a file that the command reads."""

import json
from pathlib import Path

from kerasbert.data.text.files import text_written_whole

from .examples import Examples


def check_outputs(outputs: dict[str, Path | None], inputs: dict[str, str | Path | None]) -> None:
    """Raises an error if an output cannot be written, or if it is one of the input files.

    Args:
        outputs: files by option name.
        inputs: files, folders and data sets on the hub by option name. Two parallel files, `a,b`, are one entry.
    """
    for option, output in outputs.items():
        if output is None:
            continue
        if output.is_dir():
            raise IsADirectoryError(f"`{option}` must be a file. Received: the folder {output}.")
        if not output.parent.is_dir():
            raise FileNotFoundError(
                f"`{option}` must be in a folder that exists. Received: {output}. Create its folder."
            )
        for name, source in inputs.items():
            parts = [] if source is None else [str(source), *str(source).split(",")]
            if any(Path(part).is_file() and output.exists() and output.samefile(part) for part in parts):
                raise ValueError(
                    f"A file that is read must not be written. Received: {output} for {option}, and {source} for "
                    f"{name}. Choose another file for {option}."
                )


def write_answers(path: Path, examples: Examples, answers: list) -> None:
    """Writes one JSON line per example: input, expected answer, model answer, and scores where there are any."""
    with text_written_whole(path) as file:
        for x, y, answer in zip(examples.x, examples.y, answers, strict=True):
            found = answer if isinstance(answer, dict) and "answer" in answer else {"answer": answer}
            file.write(json.dumps({"input": x, "expected": y, **found}, ensure_ascii=False) + "\n")


def write_json(path: Path, value) -> None:
    with text_written_whole(path) as file:
        file.write(json.dumps(value, indent=2))
