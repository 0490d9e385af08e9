"""Large files in pieces that a limit on the size of files allows.

python -m benchmarks.devices.pieces join FOLDER checkpoint.tar
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = 15_000_000  # bytes of a piece
SUMS = "SHA256SUMS"


def split(path: Path, folder: Path, size: int = SIZE) -> list[Path]:
    """Writes a file in pieces, with their checksums and that of the whole file.

    Earlier pieces of the same file are removed.

    Args:
        path: the file.
        folder: where NAME.000, NAME.001, ... and SHA256SUMS are written.
        size: bytes of a piece.

    Returns: the pieces.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob(f"{path.name}.[0-9][0-9][0-9]"):
        earlier.unlink()
    pieces, lines = [], []
    with path.open("rb") as file:
        while content := file.read(size):
            pieces.append(folder / f"{path.name}.{len(pieces):03}")
            pieces[-1].write_bytes(content)
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {pieces[-1].name}")
    lines.append(f"{_sum_of([path])}  {path.name}")
    (folder / SUMS).write_text("\n".join(lines) + "\n")
    return pieces


def join(folder: Path, path: Path) -> None:
    """Writes the file whose pieces are in a folder, after their checksums have been compared.

    Args:
        folder: a folder that `split` wrote.
        path: the file to write. Its name must be that of the file that was split.

    Raises: ValueError if a piece is missing or damaged. Nothing is written then.
    """
    sums = dict(reversed(line.split()) for line in (folder / SUMS).read_text().splitlines())
    names = sorted(name for name in sums if name.startswith(f"{path.name}."))
    if path.name not in sums:
        raise ValueError(f"{folder / SUMS} lists no pieces of {path.name}. It lists: {', '.join(sums)}.")
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"The piece {name} of {path.name} is missing in {folder}. There must be {len(names)}.")
        if _sum_of([folder / name]) != sums[name]:
            raise ValueError(f"The piece {name} of {path.name} is damaged: its checksum differs. Copy it again.")
    with path.open("wb") as file:
        for content in _contents([folder / name for name in names]):
            file.write(content)


def how_to_join(name: str) -> str:
    """The commands that put a file together, with and without this repository."""
    return (
        f"sha256sum --check --ignore-missing {SUMS} && cat {name}.??? > {name} && sha256sum --check --ignore-missing "
        f"{SUMS}, or: python -m benchmarks.devices.pieces join FOLDER {name}"
    )


def _contents(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while content := file.read(SIZE):
                yield content


def _sum_of(paths: list[Path]) -> str:
    found = hashlib.sha256()
    for content in _contents(paths):
        found.update(content)
    return found.hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "join":
        sys.exit(__doc__)
    join(Path(sys.argv[2]), Path(sys.argv[3]))
