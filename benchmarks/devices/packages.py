"""The packages that kerasbert needs on a machine that has JAX, PyTorch and transformers, but no Keras.

python -m benchmarks.devices.packages WHEELS TARGET     installs those that are missing
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

# {package: module that tells whether it is installed}
PACKAGES = {
    "absl-py": "absl",
    "h5py": "h5py",
    "keras": "keras",
    "markdown-it-py": "markdown_it",
    "mdurl": "mdurl",
    "namex": "namex",
    "optree": "optree",
    "packaging": "packaging",
    "pygments": "pygments",
    "rich": "rich",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "typing-extensions": "typing_extensions",
}


def missing(packages: dict[str, str]) -> list[str]:
    """The packages of {package: module} whose modules cannot be found."""
    return [name for name, module in packages.items() if importlib.util.find_spec(module) is None]


def install_missing(wheels: Path, target: Path) -> list[str]:
    """Installs packages that this Python lacks, from a folder of wheels and nothing else, and returns their names."""
    sys.path.append(str(target))
    names = missing(PACKAGES)
    if not names:
        return []
    if not wheels.is_dir():
        raise SystemExit(f"Missing packages: {', '.join(names)}. Install them, or use the folder that `pack` writes.")
    options = [
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--find-links",
        str(wheels),
        "--target",
        str(target),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, *names], check=True
    )
    print(f"installed {', '.join(names)} into {target}", flush=True)
    return names


if __name__ == "__main__":
    install_missing(*map(Path, sys.argv[1:3]))
