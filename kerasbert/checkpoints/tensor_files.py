"""Reads and writes the weight files of a model folder, in all supported formats."""

import json
import math
import mmap
import os
import re
from pathlib import Path

import numpy as np

from ..data.text.files import own_name, remove_leftovers
from ..data.text.json_files import check_types, inside, read_json, shortened
from .torch_files import TorchFile

WEIGHTS = "model.safetensors"
TORCH_WEIGHTS = "pytorch_model.bin"
EXTRA_WEIGHTS = "kerasbert.safetensors"  # tensors whose names begin with "kerasbert.", unknown to transformers
MAX_SHARD_SIZE = 5_000_000_000  # bytes
SAVE_ID = "kerasbert.save"  # key of the id of a save in the metadata of its `.safetensors` files

# === Reading ===


class TensorFiles:
    """The tensors of a model folder. Each is read by name, on demand.

    The first of these is used: `model.safetensors`, its index and shards, `pytorch_model.bin`, its index and shards. If
    there is a `kerasbert.safetensors`, its tensors are added.

    Args:
        folder: a model folder.

    Raises: FileNotFoundError if there is no weight file, or a shard is missing. ValueError if a file is damaged.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self._find()
        if (self.folder / EXTRA_WEIGHTS).exists():
            self._files[EXTRA_WEIGHTS] = open_tensors(self.folder / EXTRA_WEIGHTS)
            self.where = {**self.where, **dict.fromkeys(self._files[EXTRA_WEIGHTS].keys(), EXTRA_WEIGHTS)}

    def _find(self):
        for name in (WEIGHTS, TORCH_WEIGHTS):
            index = self.folder / f"{name}.index.json"
            if (self.folder / name).exists():
                self._files = {name: open_tensors(self.folder / name)}
                self.where = dict.fromkeys(self._files[name].keys(), name)
                return
            if index.exists():
                self._read_index(index)
                return
        there = sorted(entry.name for entry in self.folder.iterdir()) if self.folder.is_dir() else "no such folder"
        raise FileNotFoundError(
            f"A model folder must contain {WEIGHTS} or {TORCH_WEIGHTS}, or an index of one of them with its shards. "
            f"Received: {self.folder} with {there}.{conversion(self.folder)}"
        )

    def _read_index(self, index):
        content = read_json(index)
        self.where = content.get("weight_map")
        if not self.where:
            raise ValueError(f"{index} must map names to shards in `weight_map`. Received: {shortened(self.where)}.")
        check_types({"weight_map": self.where}, {"weight_map": dict[str, str]}, index)
        for shard in sorted(set(self.where.values())):
            if Path(inside(index.parent, shard, index)).suffix not in (".safetensors", ".bin"):
                raise ValueError(f"{index} must name shards in .safetensors or .bin. Received: {shortened(shard)}.")
        missing = sorted({shard for shard in self.where.values() if not (index.parent / shard).is_file()})
        if missing:
            raise FileNotFoundError(
                f"{index.name} names shards that do not exist: {', '.join(missing)}. Copy them into {self.folder}."
            )
        self._files = {shard: open_tensors(index.parent / shard) for shard in sorted(set(self.where.values()))}
        keys = {shard: set(file.keys()) for shard, file in self._files.items()}
        absent = sorted(name for name, shard in self.where.items() if name not in keys[shard])
        if absent:
            raise ValueError(
                f"Each name of {index.name} must be in the shard that it names. Received: {self.where[absent[0]]} "
                f"without {', '.join(absent)}."
            )

    def keys(self):
        return self.where.keys()

    def shape(self, name):
        """Returns the shape of a tensor without reading the tensor."""
        return self._files[self.where[name]].shape(name)

    @property
    def num_elements(self):
        """The total number of elements in all tensors."""
        return sum(math.prod(self.shape(name)) for name in self.keys())

    def read(self, name):
        """Returns a tensor as a numpy array. bfloat16 and float16 are converted to float32."""
        array = self._files[self.where[name]].get_tensor(name)
        return array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array


# {pattern of the names of files with weights of other libraries: (what they are, how transformers 4 reads them)}.
_FOREIGN = {
    r"tf_model.*\.h5(\.index\.json)?": ("TensorFlow", "from_tf=True"),
    r"flax_model.*\.msgpack(\.index\.json)?": ("Flax", "from_flax=True"),
}


def conversion(folder):
    """Returns how to convert the weights of TensorFlow or Flax in a folder, or "" if there are none."""
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    checkpoint = next((name for name in names if ".ckpt" in name), None)
    if checkpoint is not None:
        return (
            f" {checkpoint} is part of a checkpoint of TensorFlow, such as Google's of BERT. Convert it once, with "
            f"transformers 4: `transformers-cli convert --model_type bert --tf_checkpoint bert_model.ckpt --config "
            f"bert_config.json --pytorch_dump_output {TORCH_WEIGHTS}`, and copy bert_config.json to config.json."
        )
    for pattern, (library, option) in _FOREIGN.items():
        found = next((name for name in names if re.fullmatch(pattern, name)), None)
        if found is not None:
            return f" {found} has {_conversion_of(library, option)}"
    return ""


def _conversion_of(library, option):
    return (
        f"weights that transformers saved for {library}. Convert them once, with transformers 4 and PyTorch: "
        f"`AutoModelForSequenceClassification.from_pretrained(folder, {option}).save_pretrained(new_folder)`, or the "
        'class that the model has. See "Upgrade notes" in the documentation.'
    )


_NUMPY = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}  # of weights; the library reads the others


class _SafetensorsFile:
    """The tensors of a `.safetensors` file, which are read by name."""

    def __init__(self, path):
        import safetensors

        self.path = path
        try:
            self._file = safetensors.safe_open(path, framework="numpy")
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ValueError(
                f"{path} is not a complete safetensors file ({error}). Received: {path.stat().st_size} bytes. "
                "Copy or download it again."
            ) from None

        if (self._file.metadata() or {}).get("format") == "tf":
            raise ValueError(
                f"{path} must have the names of PyTorch. Received: {_conversion_of('TensorFlow', 'from_tf=True')}"
            )
        with open(path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._start = 8 + int.from_bytes(self._bytes[:8], "little")
        self._header = json.loads(self._bytes[8 : self._start])

    def keys(self):
        return self._file.keys()

    def shape(self, name):
        return tuple(self._file.get_slice(name).get_shape())

    def get_tensor(self, name):
        """Returns a copy of a tensor. The pages of the file that it needed no longer count as memory of the process."""
        entry = self._header[name]
        if entry["dtype"] in _NUMPY:
            start, stop = (self._start + offset for offset in entry["data_offsets"])
            dtype = _NUMPY[entry["dtype"]]
            numbers = np.frombuffer(self._bytes, dtype, (stop - start) // dtype.itemsize, start).copy()
            if hasattr(mmap, "MADV_DONTNEED"):
                self._bytes.madvise(mmap.MADV_DONTNEED)
            return numbers.reshape(entry["shape"])
        try:
            return self._file.get_tensor(name)
        except MemoryError:
            raise
        except Exception as error:  # the tensor has a dtype that numpy does not support
            dtype = self._file.get_slice(name).get_dtype()
            raise ValueError(
                f"{self.path} must contain dtypes that numpy supports. Received: {shortened(name)} of dtype {dtype} "
                f"({error})."
            ) from None


def open_tensors(path):
    """Opens a weight file. Raises a ValueError if it is not a file, or contains a tensor without a name."""
    if not path.is_file():
        raise ValueError(f"Weights must be files. Received: {path}, which is not a file.")
    file = TorchFile(path) if path.suffix == ".bin" else _SafetensorsFile(path)
    unnamed = sorted(name for name in file.keys() if not name.strip())
    if unnamed:
        raise ValueError(f"Every tensor must have a name. Received: {path} with a tensor called {unnamed[0]!r}.")
    return file


def save_ids(folder):
    """Returns {name of a safetensors file that `TensorFiles` reads: id of its save, or None}."""
    single = folder / WEIGHTS
    paths = [single] if single.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))
    return {path.name: _save_id(path) for path in (*paths, folder / EXTRA_WEIGHTS) if path.is_file()}


def _save_id(path):
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get(SAVE_ID)
    except (safetensors.SafetensorError, OSError, ValueError):  # reading the file says what is wrong with it
        return None


# === Writing ===


def write_atomically(path, write):
    """Replaces a file atomically. If writing fails, an existing file is left unchanged.

    Args:
        path: path of the file.
        write: function that takes the path of a temporary file and writes the content to it.
    """
    path = Path(path)
    remove_leftovers(path, "tmp")
    temporary = own_name(path, "tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path, value):
    """Writes a value as JSON, and replaces an existing file atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_tensors(folder, tensors, max_shard_size=MAX_SHARD_SIZE, save_id=None):
    """Writes `model.safetensors`, or several shards and their index. Weight files of an earlier model are removed.

    Tensors whose names begin with "kerasbert." are written to `kerasbert.safetensors`. If there are no others, as in
    folders with quantized weights, no other file is written.

    Args:
        folder: folder of the model.
        tensors: {name: numpy array}.
        max_shard_size: maximum size of a shard, in bytes or as a str such as "5GB". A larger tensor gets a separate
            shard.
        save_id: the id of the save, or None.
    """
    folder = Path(folder)
    extras = {name: array for name, array in tensors.items() if name.startswith("kerasbert.")}
    tensors = {name: array for name, array in tensors.items() if name not in extras}
    if extras:
        write_safetensors(folder / EXTRA_WEIGHTS, extras, save_id)
    else:
        (folder / EXTRA_WEIGHTS).unlink(missing_ok=True)
    shards = _shards(tensors, _bytes(max_shard_size)) if tensors else []
    names = [WEIGHTS] * len(shards)
    if len(shards) > 1:
        names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        write_safetensors(folder / name, shard, save_id)
    index = folder / f"{WEIGHTS}.index.json"
    if len(shards) > 1:
        where = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(array.nbytes for array in tensors.values())
        write_json(index, {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})
    else:
        index.unlink(missing_ok=True)
    for path in folder.glob("model*.safetensors"):
        if path.name not in names and re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors", path.name):
            path.unlink()


def _shards(tensors, limit):
    """Splits a dict of tensors into a list of dicts, each of which has at most `limit` bytes or a single tensor."""
    shards, size = [{}], 0
    for name, array in tensors.items():
        if shards[-1] and size + array.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    return shards


def _bytes(size):
    """Converts a size in bytes, or a str such as "5GB", to a number of bytes."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    found = re.fullmatch(r"(\d+)\s*(KB|MB|GB)", str(size).upper())
    number = int(found[1]) * units[found[2]] if found else size
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"`max_shard_size` must be bytes, or a str such as '5GB'. Received: {size!r}.")
    return number


def write_safetensors(path, tensors, save_id=None):
    """Writes a `.safetensors` file, and replaces an existing one atomically."""
    write_atomically(path, lambda temporary: _write_tensors(temporary, tensors, save_id))


def _write_tensors(path, tensors, save_id):
    """Writes a `.safetensors` file tensor by tensor, which avoids a second copy of the model in memory.

    The file consists of the length of the header (8 bytes), the header (JSON), and the data. transformers 4 requires
    the metadata in the header.
    """
    header, end = {"__metadata__": {"format": "pt", **({} if save_id is None else {SAVE_ID: save_id})}}, 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": _stored_dtype(array.dtype),
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).view("u1").data if array.size else b"")


def _stored_dtype(dtype):
    """Returns the name of a numpy dtype in the safetensors format, such as F32, BF16 or I64."""
    if dtype.name == "bool":
        return "BOOL"
    bits = 8 * dtype.itemsize
    return f"BF{bits}" if dtype.name == "bfloat16" else f"{dtype.kind.upper()}{bits}"
