"""Writes the output files of a command: atomically, and never over a file that the command reads."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from kerasbert.data.text.files import text_written_whole

from ..reading.examples import Examples


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


def check_model_folder(folder: Path, option: str = "--output") -> None:
    """Raises an error if a model cannot be saved in a folder, or would replace files of something else there.

    Args:
        folder: the folder, which need not exist.
        option: the option that names it.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"`{option}` must be a folder. Received: {folder}, but {there} is a file.")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"`{option}` must be a folder that you may write to. Received: {folder}.")
    is_model = any((folder / name).exists() for name in ("config.json", "kerasbert.json", "adapter_config.json"))
    found = [name for name in ("corpus.json", *([] if is_model else ["README.md"])) if (folder / name).exists()]
    if found:
        what = "is a corpus" if found[0] == "corpus.json" else "has a README.md, but no model"
        raise ValueError(f"`{option}` must be a new folder, or that of a model. Received: {folder}, which {what}.")


@contextlib.contextmanager
def cleaning_up() -> Iterator[None]:
    """Context manager, and decorator, in which SIGTERM and SIGHUP raise SystemExit, so that nothing unfinished is left.

    It is not for training, where Keras may swallow an exception that a signal handler raises.
    """

    def end(number, frame):
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {number: signal.signal(number, end) for number in numbers if not signal.getsignal(number)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def counted(number: int, what: str, several: str = "") -> str:
    """Writes a number of things: "1 example", "2,000 examples". `several` is the plural that is not formed by an s."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def score_table(scores: dict) -> str:
    """Writes scores below one another, with numbers of four significant digits. Groups of scores follow with a title.

    {"accuracy": 0.91234, "examples": 20} -> "  accuracy   0.9123\\n  examples   20"
    """
    single = {name: value for name, value in scores.items() if not isinstance(value, dict)}
    width = max(map(len, single), default=0)
    lines = [f"  {name:{width}}   {_four_digits(value)}" for name, value in single.items()]
    for name, value in scores.items():
        if isinstance(value, dict):
            lines += ["", f"{name}:", score_table(value)]
    return "\n".join(lines)


def _four_digits(value) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def write_results(output: Path | None, scores: dict, answers: dict[Path, tuple[Examples, list]]) -> None:
    """Writes answers and their scores. Earlier scores are removed first, so that they are never beside new answers.

    Args:
        output: file for the scores, or None.
        scores: the scores.
        answers: {file: (examples, answers)}.
    """
    file = output and Path(os.path.realpath(output))
    mode = file.stat().st_mode if answers and file and file.is_file() else None
    if mode is not None:
        file.unlink()
    for path, (examples, given) in answers.items():
        write_answers(path, examples, given)
    if output:
        write_json(output, scores)
        if mode is not None:
            file.chmod(mode)


def write_answers(path: Path, examples: Examples, answers: list) -> None:
    """Writes one JSON line per example: input, expected answer, model answer, and scores where there are any."""
    with text_written_whole(path) as file:
        for x, y, answer in zip(examples.x, examples.y, answers, strict=True):
            found = answer if isinstance(answer, dict) and "answer" in answer else {"answer": answer}
            file.write(json.dumps({"input": x, "expected": y, **found}, ensure_ascii=False) + "\n")


def write_json(path: Path, value) -> None:
    with text_written_whole(path) as file:
        file.write(json.dumps(value, indent=2))
