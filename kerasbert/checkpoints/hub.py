"""Downloads models from the Hugging Face Hub, and uploads them."""

import contextlib
import glob
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

# Formats of weights in the order of preference: a file, or an index with the files that it names.
_WEIGHTS = (
    (r"model\.safetensors",),
    (r"model\.safetensors\.index\.json", r"model-\d+-of-\d+\.safetensors"),
    (r"pytorch_model\.bin",),
    (r"pytorch_model\.bin\.index\.json", r"pytorch_model-\d+-of-\d+\.bin"),
    (r"model\.weights\.h5",),  # KerasHub
    (r"model\.weights\.json", r"model_\d+\.weights\.h5"),
)
_INDEX = re.compile(r".*\.index\.json|model\.weights\.json")
_WITH_WEIGHTS = re.compile(
    r"(?:kerasbert|model_head)\.safetensors|[^.].*\.(json|txt|model|spm|vocab)|README\.md|assets/.*"
)
# Folders that are part of a model: the two models of ELECTRA, and the modules of sentence-transformers.
_PARTS = re.compile(r"(generator|discriminator|(?:(?:query|document)_)?\d+_\w+)/")


def huggingface_hub():
    """Returns the package `huggingface_hub`. Raises an ImportError with the command that installs it."""
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(
            "Models on the Hugging Face Hub need the package huggingface_hub. Install it: pip install huggingface_hub"
        ) from None
    return huggingface_hub


@contextlib.contextmanager
def reaching(repository, fix):
    """Context manager in which any failure to reach the Hub is a ConnectionError of one line.

    Args:
        repository: "org/name", for the message.
        fix: what to do without a connection, for the message.
    """
    hub = huggingface_hub()
    try:
        yield
    except (hub.errors.HfHubHTTPError, ValueError):
        raise  # the Hub answered, so there is no such model or no access to it, or the name is not valid
    except Exception as error:
        if not isinstance(error, (OSError, *_connection_errors())):
            raise
        raise ConnectionError(f"The Hub could not be reached. Received: hf://{repository}. {fix}") from None


def _connection_errors():
    """The errors of the network in the library that `huggingface_hub` uses, which is not the same in all versions."""
    modules = filter(None, (sys.modules.get("httpx"), sys.modules.get("requests")))
    return [getattr(module, "TransportError", None) or module.RequestException for module in modules]


def needed_files(names):
    """Selects the files of a repository that loading requires: one format of the weights, and small files.

    Args:
        names: the paths of all files.
    """
    folders = {""} | {found[0] for name in names if (found := _PARTS.match(name))}
    needed = set()
    for folder in folders:
        inside = {name[len(folder) :]: name for name in names if name.startswith(folder)}
        inside = {short: name for short, name in inside.items() if "/" not in short or short.startswith("assets/")}
        chosen = next((form for form in _WEIGHTS if any(re.fullmatch(form[0], short) for short in inside)), ())
        for short, name in inside.items():
            is_small = _WITH_WEIGHTS.fullmatch(short) and not _INDEX.fullmatch(short)
            if is_small or any(re.fullmatch(pattern, short) for pattern in chosen):
                needed.add(name)
    return sorted(needed)


def download(repository, revision=None, token=None):
    """Downloads the files of a model on the Hub that loading requires. Returns the local folder.

    Args:
        repository: "org/name".
        revision: branch, tag or commit.
        token: access token.

    Raises: ConnectionError if the Hub cannot be reached, and no earlier download is in the cache.
    """
    hub = huggingface_hub()
    options: dict[str, Any] = dict(revision=revision, token=token)
    fix = "Download the folder on a connected machine and pass its path."
    try:
        with reaching(repository, fix):
            files = hub.HfApi().model_info(repository, **options).siblings
    except ConnectionError:
        try:
            return Path(hub.snapshot_download(repository, local_files_only=True, **options))
        except Exception:
            pass
        raise
    patterns = [glob.escape(name) for name in needed_files([file.rfilename for file in files])]
    with reaching(repository, fix):
        return Path(hub.snapshot_download(repository, allow_patterns=patterns, **options))


def upload(model, repository, card, private=None, token=None, revision=None, message=None):
    """Uploads a model to a repository on the Hub, which is created if it does not exist.

    Args:
        model: a backbone, objective or task.
        repository: "org/name".
        card: text of the model card.
        private: whether a new repository is private. Default: the setting of the organization.
        token: access token. Default: the token saved by `hf auth login`, or the environment variable HF_TOKEN.
        revision: branch. Default: main.
        message: commit message.

    Returns: the URL of the commit.

    Raises: ConnectionError if the Hub cannot be reached.
    """
    hub = huggingface_hub()
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        (Path(folder) / "README.md").write_text(card, encoding="utf-8")
        api = hub.HfApi(token=token)
        with reaching(repository, "Save the model with save_to_preset(folder), and push it from a connected machine."):
            api.create_repo(repository, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                revision=revision,
                commit_message=message or f"{type(model).__name__} saved by kerasbert",
            )
    return commit.commit_url
