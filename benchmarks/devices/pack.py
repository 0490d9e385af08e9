"""Writes a folder for `gpu_check.sh` on another machine: this package, and wheels of what that machine may lack.

    benchmarks/devices/gpu_check.sh pack FOLDER

Wheels are for Linux on x86-64. Those of h5py and optree depend on the version of Python, so there is one for each.
"""

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.devices.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 60  # MiB of the folder
PYTHONS = ("3.11", "3.12", "3.13")
# Packages with a wheel for each version of Python; the wheels of others fit all versions.
PER_VERSION = ("h5py", "optree")
SYSTEMS = [f"manylinux_2_{n}_x86_64" for n in (34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
TAKEN = ("kerasbert/", "pipelines/", "benchmarks/", "LICENSE", "pyproject.toml")
LEFT_OUT = (".md", ".jsonl", ".png")  # results of earlier benchmarks


def is_taken(name: str) -> bool:
    """Whether a file of the repository is needed on the other machine."""
    return name.startswith(TAKEN) and not (name.startswith("benchmarks/") and name.endswith(LEFT_OUT))


def copy_sources(folder: Path) -> dict[str, int]:
    """Copies the sources, and returns {top folder or file that is left out: bytes}."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    left_out = Counter()
    for name in listed.stdout.decode().splitlines():
        path = ROOT / name
        if is_taken(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
        elif path.is_file():
            parts = name.split("/")
            part = "/".join(parts[:2]) if parts[0] == "tests" and parts[1:2] == ["goldens"] else parts[0]
            left_out[part] += path.stat().st_size
    return dict(left_out)


def download(folder: Path) -> None:
    """Downloads the wheels, in the versions of `constraints.txt`, without what they need themselves."""
    common = [*("--no-deps", "--only-binary=:all:", "--implementation=cp", f"--dest={folder}", "--quiet")]
    common += [f"--platform={system}" for system in SYSTEMS] + ["--disable-pip-version-check"]
    common += ["--constraint", str(ROOT / "constraints.txt")]
    for number, version in enumerate(PYTHONS):
        names = PER_VERSION if number else PACKAGES
        subprocess.run(
            [sys.executable, "-m", "pip", "download", f"--python-version={version}", *common, *names], check=True
        )


def size_of(folder: Path) -> float:
    """MiB of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    folder = parser.parse_args().folder
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"The folder must be new or empty. Received: {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    left_out = copy_sources(folder)
    download(folder / "wheels")
    for wheel in sorted((folder / "wheels").iterdir()):
        print(f"{wheel.stat().st_size / 2**20:6.2f} MiB  {wheel.name}")
    print("left out: " + ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for name, size in sorted(left_out.items())))
    total = size_of(folder)
    print(f"{folder}: {total:.1f} MiB of at most {LARGEST}, for Python {', '.join(PYTHONS)}")
    print(f"on the other machine: {folder.name}/benchmarks/devices/gpu_check.sh check")
    return total > LARGEST


if __name__ == "__main__":
    raise SystemExit(main())
