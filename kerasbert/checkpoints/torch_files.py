"""Reads files written by `torch.save` without torch: the zip format, and the format of torch before version 1.6.

All sizes and offsets in a file are checked against its actual length before they are used.
"""

import math
import mmap
import struct
import zipfile
import zlib

import numpy as np

from .tensor_pickles import PickleMachine, RefusedPickle, View

_ZIP = b"PK\x03\x04"
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_FLAGS = 0x808  # allowed flags of a zip entry: sizes follow the data, and the name is in UTF-8
_DIRECTORY = 0x10  # attribute of zip entries that are folders
_LARGE_RECORDS = 76  # size in bytes of the zip64 records between the directory and the end record
_VERSIONS = range(1, 11)  # supported versions of torch's zip format


class TorchFile:
    """The tensors of a `.bin` file, which are read by name.

    Args:
        path: path of a file that contains a state dict.

    Raises: ValueError if the file is incomplete or damaged, or contains anything other than tensors.
    """

    def __init__(self, path):
        self.path = path
        self._checked = set()
        with open(path, "rb") as file:
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._places = {}  # {key of a storage: (offset of its first byte, its checksum or None)}
                content = self._read_zip(file) if self._bytes[:4] == _ZIP else self._read_legacy()
            except RefusedPickle:
                raise
            except (ValueError, KeyError, IndexError, TypeError, OverflowError, struct.error) as error:
                self._refuse(error)
            except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError) as error:
                self._refuse(error)
        if not isinstance(content, dict):
            raise ValueError(f"{path} must hold a dict of tensors by name. Received: {type(content).__name__}.")
        for name, value in content.items():
            if type(value) is not View:
                raise ValueError(
                    f"{path} must contain only tensors. Received: {name!r:.60} of type "
                    f"{type(value).__name__}. "
                    "If this is a training checkpoint, save only its state dict."
                )
        self._tensors = content

    def _refuse(self, error):
        raise ValueError(
            f"{self.path} is not a complete torch.save file, or is damaged ({type(error).__name__}: {error!s:.200}). "
            f"Received: {self.path.stat().st_size} bytes. Copy or download it again."
        ) from None

    def keys(self):
        return self._tensors.keys()

    def shape(self, name):
        return self._tensors[name].shape

    def get_tensor(self, name):
        """Returns a tensor as a numpy array. bfloat16 is converted to float32."""
        storage, offset, shape, strides = self._tensors[name]
        dtype = np.dtype("<u2" if storage.dtype == "bfloat16" else storage.dtype)
        if not math.prod(shape):
            return np.zeros(shape, "float32" if storage.dtype == "bfloat16" else dtype)
        start, checksum = self._places[storage.key]
        numbers = np.frombuffer(self._bytes, dtype, storage.size, start)
        if checksum is not None and storage.key not in self._checked:
            if zlib.crc32(numbers.view("u1")) != checksum:
                raise ValueError(f"{self.path} is damaged: the checksum of {name} is wrong. Copy or download it again.")
            self._checked.add(storage.key)
        strides = [stride * dtype.itemsize for stride in strides]
        array = np.lib.stride_tricks.as_strided(numbers[offset:], shape, strides, writeable=False)
        if storage.dtype == "bfloat16":
            return (array.astype("<u4") << 16).view("<f4")
        return np.array(array)

    def _read_zip(self, file):
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
        entries = {entry.filename: entry for entry in listed}
        if not listed or len(entries) < len(listed) or any(entry.volume or entry.comment for entry in listed):
            raise ValueError("a zip without entries, with duplicate names, or on several disks")
        self._check_directory(len(listed))
        root = listed[0].filename.partition("/")[0]
        if f"{root}/data.pkl" not in entries:
            raise ValueError("there is no data.pkl in it")
        names = [entry.orig_filename for entry in listed]
        if not all(name.startswith(f"{root}/") and name.isascii() and "\0" not in name for name in names):
            raise ValueError(f"an entry outside {root}")
        if f"{root}/constants.pkl" in entries:
            raise ValueError("it is a TorchScript program; save the state dict of the module")
        order = entries.get(f"{root}/byteorder")
        if order is not None and self._content(order) != b"little":
            raise ValueError("its numbers are big-endian")
        for entry in listed:
            self._start(entry)
        storages, pickled = {}, entries[f"{root}/data.pkl"]
        self._content(pickled)
        self._bytes.seek(self._start(pickled))
        content = PickleMachine(self._bytes, self.path, storages).run()
        if self._bytes.tell() > self._start(pickled) + pickled.file_size:
            raise ValueError("a pickle that is longer than its entry")
        version = entries.get(f"{root}/.data/version", entries.get(f"{root}/version"))
        if version is None or self._number(version) not in _VERSIONS:
            raise ValueError("its version is unknown")
        identity = entries.get(f"{root}/.data/serialization_id")
        if identity is not None and not self._content(identity).isascii():
            raise ValueError("its serialization id is not text")
        if f"{root}/.storage_alignment" in entries:
            self._number(entries[f"{root}/.storage_alignment"])
        for key, storage in storages.items():
            entry = entries[f"{root}/data/{key}"]
            if entry.file_size != storage.num_bytes:
                raise ValueError(f"{entry.filename} has {entry.file_size} bytes for {storage.size} numbers")
            self._places[key] = self._start(entry), entry.CRC
        return content

    def _check_directory(self, count):
        """Raises a ValueError unless the end record of a zip matches its directory of `count` entries."""
        end = self._bytes.rfind(b"PK\x05\x06")
        *disks, here, total, size, start = struct.unpack("<HHHHII", self._bytes[end + 4 : end + 20])
        if self._bytes[end - 20 : end - 16] == b"PK\x06\x07":  # zip64: two more records, for large files
            end -= _LARGE_RECORDS
            record = struct.unpack("<4sQHHIIQQQQ4sIQI", self._bytes[end : end + _LARGE_RECORDS])
            more_disks, (here, total, size, start), place, number = record[4:6], record[6:10], record[12], record[13]
            disks += [*more_disks, record[11], number - 1, place - end]
        if any(disks) or not here == total == count or start + size != end:
            raise ValueError("a zip whose end record does not match its directory")

    def _content(self, entry):
        """Returns the bytes of a small zip entry, after checking their checksum."""
        start = self._start(entry)
        content = self._bytes[start : start + entry.file_size]
        if zlib.crc32(content) != entry.CRC:
            raise ValueError(f"the checksum of {entry.filename} is wrong")
        return content

    def _number(self, entry):
        digits = self._content(entry).strip()
        if not digits.isdigit() or len(digits) > 9:
            raise ValueError(f"{entry.filename} is not a number")
        return int(digits)

    def _start(self, entry):
        """Returns the offset of the data of a zip entry, which follows the local header of the entry.

        Raises a ValueError if the entry is not an ordinary, uncompressed entry within the file.
        """
        if entry.is_dir() or entry.external_attr & _DIRECTORY:
            raise ValueError(f"{entry.filename} is a folder")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ~_FLAGS:
            raise ValueError(
                f"{entry.filename} is compressed or encrypted, which torch.save never does: unpack it and save it again"
            )
        header = self._bytes[entry.header_offset : entry.header_offset + 30]
        if len(header) < 30 or header[:4] != _ZIP:
            raise ValueError(f"the directory of the zip file gives a wrong position for {entry.filename}")
        name, extra = struct.unpack("<HH", header[26:])
        start = entry.header_offset + 30 + name + extra
        if start + entry.file_size > len(self._bytes) or entry.file_size != entry.compress_size:
            raise ValueError(f"{entry.filename} has {entry.file_size} bytes, which extend past the end of the file")
        return start

    def _read_legacy(self):
        storages = {}

        def load():
            return PickleMachine(self._bytes, self.path, storages).run()

        if load() != _LEGACY_MAGIC or load() != _LEGACY_PROTOCOL:
            raise ValueError("its header is wrong")
        system, content, keys = load(), load(), load()
        if not isinstance(system, dict) or system.get("little_endian", True) is not True:
            raise ValueError("its numbers are big-endian")
        if type(keys) is not list or len(keys) != len(storages) or {*keys} != storages.keys():
            raise ValueError("its list of storages does not match its tensors")
        for key in keys:
            place, storage = self._bytes.tell() + 8, storages[key]
            count = int.from_bytes(self._bytes.read(8), "little")
            if count != storage.size or place + storage.num_bytes > len(self._bytes):
                raise ValueError(f"storage {key} of {storage.size} numbers is cut off")
            self._places[key] = place, None
            self._bytes.seek(place + storage.num_bytes)
        return content
