"""The programs of an export in ONNX, which ONNX Runtime computes on the CPU."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..data.text.json_files import check_types, inside, shortened
from .inputs import OUR_NAMES

# What `kerasbert.json` says about each program, by type.
DESCRIPTION = {"file": str, "sha256": str, "inputs": dict[str, dict], "outputs": dict[str, list]}


@dataclasses.dataclass(frozen=True)
class Threads:
    """How ONNX Runtime uses cores.

    Args:
        count: number of threads. Default: `OMP_NUM_THREADS`, or all cores.
        spin: whether threads that wait for work keep their cores busy, which is faster where nothing else runs.
    """

    count: int | None = None
    spin: bool = True


class Programs:
    """The programs of an export. Several threads may run them at the same time.

    Args:
        folder: folder of the export.
        described: the entry `export` of its `kerasbert.json`.
        threads: how they use cores.
    """

    def __init__(self, folder: Path, described: Mapping[str, Any], threads: Threads = Threads()):
        if described.get("format") not in ("onnx", "onnxruntime"):
            raise ValueError(
                f"kerasbert runs exports in ONNX. Received: {folder}, in {shortened(described.get('format'))}. Export "
                'the model again with format="onnx", or run its example.py.'
            )
        self.described: dict[str, Mapping[str, Any]] = {"model": described, **described.get("programs", {})}
        self.files: dict[str, Path] = {name: checked_file(folder, program) for name, program in self.described.items()}
        self.threads = threads
        self.sessions = {"model": session(self.files["model"], threads)}

    def run(self, name: str, x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a program of the export. Returns {output: array}.

        Args:
            name: "model", or for generation "encoder" or "decoder".
            x: {input: array}, with the names of this package; other arrays are ignored.
        """
        if name not in self.sessions:
            self.sessions[name] = session(self.files[name], self.threads)
        program = self.described[name]
        entries: dict[str, dict] = program["inputs"]
        inputs = {key: x[OUR_NAMES.get(key, key)].astype(entry["dtype"], copy=False) for key, entry in entries.items()}
        outputs: list[str] = list(program["outputs"])
        found = self.sessions[name].run(outputs, inputs)
        return {OUR_NAMES.get(key, key): array for key, array in zip(outputs, found, strict=True)}


def checked_file(folder: Path, described: Mapping[str, Any]) -> Path:
    """Returns the path of a program of an export. Raises an error if it is missing, or is not the one described."""
    source = folder / "kerasbert.json"
    missing = sorted({*DESCRIPTION} - {*described})
    if missing:
        raise ValueError(f"The `export` in {source} must have {', '.join(DESCRIPTION)}. Received: none of {missing}.")
    check_types(dict(described), DESCRIPTION, source)
    file = inside(folder, described["file"], source)
    if not file.is_file():
        raise FileNotFoundError(f"An export must contain {described['file']}. Received: {folder} without it.")
    with open(file, "rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != described["sha256"]:
            raise ValueError(
                f"The program of an export must be the one that its kerasbert.json describes. Received: {file}, which "
                "belongs to another export, or was changed. Export the model again."
            )
    return file


def session(file: Path, threads: Threads = Threads()) -> Any:
    """Opens an ONNX file in ONNX Runtime, on the CPU, with all its optimizations."""
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(
            'This folder is an export in ONNX, which needs onnxruntime. Install it: pip install "kerasbert[export]"'
        ) from None
    options = onnxruntime.SessionOptions()
    stated = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = threads.count or (int(stated) if stated.isdigit() else number_of_cores())
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(threads.spin)))
    options.enable_mem_pattern = False  # it keeps a plan of the memory for each of the many shapes of batches
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def number_of_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
