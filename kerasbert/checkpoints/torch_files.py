"""Files that `torch.save` wrote, read without torch: the zip format, and the pickles of torch before 1.6.

A pickle is a program. This one may build an ordered dict of tensors and nothing else: every name that it asks for is
looked up in a list of tensor constructors, and any other is refused by name. Tensors stay on disk until they are read.
"""

import collections
import dataclasses
import math
import pickle
import zipfile

import numpy as np

_ZIP = b"PK\x03\x04"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C

# The storage classes of torch -> numpy; bfloat16 is the upper half of a float32.
_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}


@dataclasses.dataclass
class _Storage:
    """A run of numbers in the file; `start` is known once the whole file was looked through."""

    dtype: str
    size: int
    start: int = -1
    read: object = None  # for compressed entries, which have no place to map

    @property
    def itemsize(self):
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize


@dataclasses.dataclass
class _View:
    """A tensor: which numbers of a storage, in elements."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple

    def __post_init__(self):
        numbers = [self.offset, *self.shape, *self.strides]
        if len(self.shape) != len(self.strides) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"a tensor of shape {self.shape}, strides {self.strides}, offset {self.offset}")
        last = self.offset + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        if math.prod(self.shape) and last >= self.storage.size:
            raise ValueError(f"a tensor that ends at {last} in a storage of {self.storage.size} numbers")


def _rebuild_tensor(storage, offset, shape, strides, *_):
    return _View(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor, *_):
    return tensor


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): name for name in _STORAGES},
}


class RefusedPickle(ValueError):
    """A pickle asked for something that is no tensor constructor."""


class _TensorUnpickler(pickle.Unpickler):
    def __init__(self, file, path, storages):
        super().__init__(file, encoding="utf-8")
        self.path = path
        self.storages = storages

    def find_class(self, module, name):
        if (module, name) not in _ALLOWED:
            raise RefusedPickle(
                f"A weight file may hold tensors and nothing else. Received: {self.path}, whose pickle asks for "
                f"{module}.{name}, which was refused: running it could do anything. Get the weights as safetensors."
            )
        return _ALLOWED[module, name]

    def persistent_load(self, identifier):
        kind, storage, key, _, size, *view = identifier
        if kind != "storage" or storage not in _STORAGES or (view and view[0] is not None):
            raise ValueError(f"an unknown kind of storage, {identifier}")
        return self.storages.setdefault(key, _Storage(_STORAGES[storage], int(size)))


class TorchFile:
    """The tensors of one `.bin` file, by name.

    Args:
        path: of a file that holds a state dict.

    Raises: ValueError when the file is cut off, or holds anything but tensors.
    """

    def __init__(self, path):
        self.path = path
        storages = {}
        with open(path, "rb") as file:
            start = file.read(4)
            file.seek(0)
            try:
                content = self._read_zip(file, storages) if start == _ZIP else self._read_legacy(file, storages)
            except RefusedPickle:
                raise
            except (pickle.UnpicklingError, EOFError, zipfile.BadZipFile, ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{path} is not a whole file of torch.save ({type(error).__name__}: {error}). Received: "
                    f"{path.stat().st_size} bytes. Copy or download it again."
                ) from None
            except (AttributeError, IndexError, OverflowError, UnicodeDecodeError) as error:
                raise ValueError(f"{path} holds a damaged pickle ({type(error).__name__}: {error}).") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path} must hold a dict of tensors by name. Received: {type(content).__name__}.")
        for name, value in content.items():
            if not isinstance(value, _View) or not isinstance(name, str):
                raise ValueError(
                    f"{path} must hold tensors and nothing else. Received: {name!r} of type {type(value).__name__}. "
                    "If this is a training checkpoint, save its state dict alone."
                )
        self._tensors = dict(content)

    def keys(self):
        return self._tensors.keys()

    def get_tensor(self, name):
        """The tensor as numpy; bfloat16 is widened to float32."""
        view = self._tensors[name]
        storage = view.storage
        if not math.prod(view.shape):
            return np.zeros(view.shape, "float32" if storage.dtype == "bfloat16" else storage.dtype)
        dtype = np.dtype("<u2" if storage.dtype == "bfloat16" else storage.dtype)
        if storage.read is not None:
            numbers = np.frombuffer(storage.read(), dtype, storage.size)
        else:
            numbers = np.memmap(self.path, dtype, "r", storage.start, (storage.size,))
        strides = [stride * dtype.itemsize for stride in view.strides]
        array = np.lib.stride_tricks.as_strided(numbers[view.offset :], view.shape, strides, writeable=False)
        if storage.dtype == "bfloat16":
            return (array.astype("<u4") << 16).view("<f4")
        return np.array(array)

    def _read_zip(self, file, storages):
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            root = next((name.removesuffix("data.pkl") for name in entries if name.endswith("data.pkl")), None)
            if root is None:
                raise ValueError("there is no data.pkl in it")
            order = f"{root}byteorder"
            if order in entries and archive.read(order) != b"little":
                raise ValueError("its numbers are big-endian")
            with archive.open(f"{root}data.pkl") as pickled:
                content = _TensorUnpickler(pickled, self.path, storages).load()
            for key, storage in storages.items():
                entry = entries[f"{root}data/{key}"]
                if entry.file_size < storage.size * storage.itemsize:
                    raise ValueError(f"{entry.filename} has {entry.file_size} bytes for {storage.size} numbers")
                if entry.compress_type == zipfile.ZIP_STORED:
                    storage.start = _data_start(file, entry)
                else:
                    storage.read = lambda name=entry.filename: zipfile.ZipFile(self.path).read(name)
        return content

    def _read_legacy(self, file, storages):
        def load():
            return _TensorUnpickler(file, self.path, storages).load()

        if load() != _LEGACY_MAGIC:
            raise ValueError("it does not begin as one")
        _protocol, system, content, keys = load(), load(), load(), load()
        if not system.get("little_endian", True):
            raise ValueError("its numbers are big-endian")
        for key in keys:
            header = file.read(8)
            count = int.from_bytes(header, "little")
            storage = storages[key]
            storage.start = file.tell()
            end = file.seek(storage.size * storage.itemsize, 1)
            if len(header) < 8 or count != storage.size or end > self.path.stat().st_size:
                raise ValueError(f"storage {key} of {storage.size} numbers is cut off")
        return content


def _data_start(file, entry):
    """Where the bytes of an uncompressed zip entry begin: behind its local header, whose length only it knows."""
    file.seek(entry.header_offset + 26)
    name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
    return entry.header_offset + 30 + name + extra
