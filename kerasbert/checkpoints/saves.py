"""Saves models, and checks that the files of a folder belong to one save.

The metadata of every `.safetensors` file has the random id of the save. `kerasbert.json` has it, too, with digests of
the small files. Weights without an id were written by another program, which is never an error.
"""

import contextlib
import logging
import re
import secrets
from pathlib import Path

from ..core.quantization import has_integers
from ..core.variables import parts_of
from ..data.text.files import digest_of
from ..data.text.folders import read_together, replaced_together
from ..data.tokenizers.export import TOKENIZER_FILES
from . import huggingface, quantized
from .description import description
from .folder import RECORD, ModelFolder
from .folders import find_folder
from .tensor_files import MAX_SHARD_SIZE, write_json, write_tensors

PARTS = ("generator", "discriminator")  # models in subfolders
# Files that a model may have, and that loading it here, in `evaluate` or in transformers reads. What a save does not
# write of them describes the model before.
_REPLACED = re.compile(
    r"config\.json|kerasbert\.(json|safetensors)|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
    r"|modules\.json|sentence_bert_config\.json|config_sentence_transformers\.json|generation_config\.json"
    r"|recipe\.json|" + "|".join(map(re.escape, TOKENIZER_FILES))
)
_RECORDS_OF_PARTS = [f"{name}/{RECORD}" for name in PARTS]
_POOLING = re.compile(r"\d+_\w+/config\.json")

logger = logging.getLogger(__name__)


def new_id():
    """Returns the id of a save: 32 random hexadecimal digits."""
    return secrets.token_hex(16)


# === Saving ===


def save(model, path, max_shard_size=MAX_SHARD_SIZE, tokenizer_of=None):
    """Writes a model folder, which then has no files of an earlier model that loading reads. Others are left unchanged.

    Args:
        model: a backbone, objective or task.
        path: the folder, created if it does not exist.
        max_shard_size: maximum size of a weight file, in bytes or as a str such as "5GB".
        tokenizer_of: the objective or task whose tokenizer is saved, if it has one. Default: `model`.
    """
    config, saved = description(model)
    save_id = new_id()
    tensors = quantized.export_weights(model) if has_integers(model) else huggingface.export_weights(model)
    with replaced_model(Path(path)) as folder:
        write_tensors(folder, tensors, max_shard_size, save_id)
        write_json(folder / "config.json", config)
        if model is not parts_of(model):
            source = model if tokenizer_of is None or tokenizer_of.tokenizer is None else tokenizer_of
            source.save_tokenizer(folder)
            model.write_extras(folder)
        write_record(folder, saved, save_id)


def is_replaced(name):
    """Whether a save of a model replaces or removes a file, given by its name."""
    return _REPLACED.fullmatch(name) is not None


def replaced_model(folder, also=()):
    """Returns a context manager like `replaced_together` that also removes the files of the earlier model.

    Args:
        folder: folder of a model.
        also: glob patterns of further files to remove.
    """

    def stale(new):
        found = [path.relative_to(folder).as_posix() for pattern in also for path in folder.glob(pattern)]
        for part in ("", *(f"{name}/" for name in PARTS)):
            if f"{part}config.json" in new:
                found += [f"{part}{path.name}" for path in (folder / part).glob("*") if is_replaced(path.name)]
        return found

    return replaced_together(folder, stale=stale)


def write_record(folder, saved, save_id):
    """Writes `kerasbert.json` with the id of the save, and the digests of the small files in a folder.

    Args:
        folder: a folder with all other files of the model.
        saved: the other content of the file.
        save_id: the id that the weights have.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = {name: digest_of(folder / name) for name in names if _has_digest(name)}
    write_json(folder / RECORD, {**saved, "save": {"id": save_id, "files": files}})


def _has_digest(name):
    if name == RECORD or name.endswith(".safetensors"):
        return False
    return is_replaced(name) or name in _RECORDS_OF_PARTS or _POOLING.fullmatch(name) is not None


# === Loading ===


@contextlib.contextmanager
def one_save(folder, allow_mixed=False):
    """Context manager in which the files of a model are opened. Raises a ValueError unless they belong to one save.

    If another program has changed files, one line says so: users edit labels, and transformers writes models.

    Args:
        folder: a `ModelFolder`.
        allow_mixed: whether files of several saves are accepted.
    """
    if allow_mixed:
        yield
        return
    with read_together(folder.path, is_read):
        changed = _changed_files(folder)
        if changed:
            logger.warning(
                f"{folder} was changed by another program since the model was saved: {', '.join(changed)}. This is "
                f"used as it is now. To save it with the model: kerasbert.load({str(folder)!r}).save_to_preset("
                f"{str(folder)!r})"
            )
        yield


@contextlib.contextmanager
def opened_model(path, revision=None, token=None, allow_mixed=False, reads_discriminators=True):
    """Context manager that yields the `ModelFolder` of a model, inside which its files are opened; see `one_save`.

    Args:
        path: a `ModelFolder`, or what `find_folder` takes, with `revision` and `token`. If the folder holds a generator
            and a discriminator, the discriminator is opened.
        allow_mixed: whether files of several saves are accepted.
        reads_discriminators: whether any discriminator can be opened, or only one that predicts tokens.
    """
    folder = path if isinstance(path, ModelFolder) else ModelFolder(find_folder(path, revision, token))
    with contextlib.nullcontext() if allow_mixed else read_together(folder.path, is_read):
        model = folder.part("discriminator") if folder.class_name == "ReplacedTokenDetection" else folder
        if model is not folder and not reads_discriminators and model.saved.get("class") != "MaskedLM":
            raise ValueError(
                f"A MaskedLM needs a folder that predicts tokens. Received: {path}, which holds a generator and a "
                f"discriminator. Use {path}/generator, or {path}/discriminator for its weights with a new head."
            )
        with one_save(model, allow_mixed):
            yield model


def is_read(name):
    """Whether a file in a model's folder, given by its name, is replaced by saves, or has weights of other programs."""
    return is_replaced(name) or name.startswith(("pytorch_model", "model."))


def _changed_files(folder):
    """Returns the names of files that another program has changed. Raises a ValueError for files of another save."""
    record = folder.record.get("save") or {}
    _check_ids(folder, record.get("id"), folder.save_ids)
    changed = [name for name, save_id in folder.save_ids.items() if record and save_id is None]
    for name, digest in (record.get("files") or {}).items():
        path = folder.path / name
        if _has_digest(name) and path.is_file() and folder.digest(name) != digest:
            if name in _RECORDS_OF_PARTS:
                raise ValueError(_mixed(folder, f"{path.parent.name}/ is of another one"))
            changed.append(name)
    return changed


def _check_ids(folder, expected, ids):
    """Raises a ValueError unless the weights in a folder belong to one save, and to that of its `kerasbert.json`.

    Args:
        folder: folder of the model.
        expected: the id in `kerasbert.json`, or None.
        ids: {name of a file of weights: its id, or None}.
    """
    ours = {name: save_id for name, save_id in ids.items() if save_id is not None}
    wrong = [name for name, save_id in ours.items() if save_id != (expected or next(iter(ours.values())))]
    if wrong:
        raise ValueError(_mixed(folder, f"{wrong[0]} is of another one{'' if expected is None else f' than {RECORD}'}"))
    shards = {name: save_id for name, save_id in ids.items() if name.startswith("model-")}
    if len(set(shards.values())) > 1:
        other = next(name for name, save_id in shards.items() if save_id is None)
        raise ValueError(_mixed(folder, f"{other} is of another one than the other shards"))


def _mixed(folder, what):
    return (
        f"All files of a model folder must be of one save. Received: {folder}, of which {what}: files of two models "
        f"were mixed, or a save was interrupted. Save the model again. To use the folder as it is: "
        f"kerasbert.load({str(folder)!r}, allow_mixed=True)."
    )
