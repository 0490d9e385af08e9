"""Saves models to folders, which `presets` loads."""

import secrets

from ..core.quantization import has_integers
from ..core.variables import parts_of
from ..data.text.files import digest_of
from ..data.text.folders import folder_at, replaced_together
from . import huggingface, quantized
from .description import description
from .folder import PARTS, RECORD, has_digest, is_replaced
from .tensor_files import MAX_SHARD_SIZE, write_json, write_tensors


def new_id():
    """Returns the id of a save: 32 random hexadecimal digits."""
    return secrets.token_hex(16)


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
    with replaced_model(folder_at(path)) as folder:
        write_tensors(folder, tensors, max_shard_size, save_id)
        write_json(folder / "config.json", config)
        if model is not parts_of(model):
            source = model if tokenizer_of is None or tokenizer_of.tokenizer is None else tokenizer_of
            source.save_tokenizer(folder)
            model.write_extras(folder)
        write_record(folder, saved, save_id)


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
    files = {name: digest_of(folder / name) for name in names if has_digest(name)}
    write_json(folder / RECORD, {**saved, "save": {"id": save_id, "files": files}})
