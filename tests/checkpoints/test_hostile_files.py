"""Weight files made to read memory, to fill it, or to leave their folder: each is refused, and says why."""

import json
import os
import pickle
import zipfile

import numpy as np
import pytest

from kerasbert.checkpoints.tensor_files import TensorFiles, write_tensors

pytestmark = pytest.mark.one_backend

# === Pickles ===


def value(item):
    """The instructions that push a str, an int, a tuple of them, a bool or a dict."""
    if isinstance(item, tuple):
        return b"(" + b"".join(map(value, item)) + b"t"
    if isinstance(item, dict):
        return b"}(" + b"".join(value(part) for pair in item.items() for part in pair) + b"u"
    return pickle.dumps(item, protocol=2)[2:-1]


def tensor(size=4, shape=(4,), strides=(1,), offset=0, further=b"", key="0", storage="FloatStorage"):
    """The instructions that push a tensor on a storage of `size` numbers; `further` follow the storage."""
    location = value("storage") + f"ctorch\n{storage}\n".encode() + value(key) + value("cpu") + value(size)
    arguments = b"(" + b"(" + location + b"tQ" + further + value(offset) + value(shape) + value(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"\x89ccollections\nOrderedDict\n)RtR"


def write_bin(folder, instructions, numbers=4, compression=zipfile.ZIP_STORED, entry="data/0", **further):
    """A file of torch.save whose pickle is a dict of what `instructions` push as "x"."""
    pickled = b"\x80\x02}" + value("x") + instructions + b"s."
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr(f"archive/{entry}", np.arange(numbers, dtype="float32").tobytes())
        archive.writestr("archive/version", "3\n")
        for name, content in further.items():
            archive.writestr(f"archive/{name}", content)
    return folder


def test_the_file_that_the_others_are_made_of_is_read(tmp_path):
    files = TensorFiles(write_bin(tmp_path, tensor(shape=(2, 2), strides=(2, 1))))
    np.testing.assert_array_equal(files.read("x"), [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    "state",
    [
        {"shape": (10**6,), "strides": (10**8,)},
        {"shape": (700,)},
        {"offset": 10**9},
        {"storage": "O", "dtype": "O", "read": "x"},
    ],
)
def test_records_take_no_attributes(state, tmp_path):
    """BUILD once replaced the numbers of a tensor after they had been checked, which read memory beyond the file."""
    for where in ({"further": value(state) + b"b"}, {}):
        instructions = tensor(**where) if where else tensor() + value(state) + b"b"
        with pytest.raises(ValueError, match="attributes for something other than a state dict"):
            TensorFiles(write_bin(tmp_path, instructions))


@pytest.mark.parametrize("function", ["ctorch._utils\n_rebuild_tensor_v2\n", "ccollections\nOrderedDict\n"])
def test_functions_take_no_attributes(function, tmp_path):
    """As (state, slots), BUILD sets any attribute of what it is given, so also of a function of this package."""
    attack = function.encode() + b"N" + value({"__defaults__": (1, 2, 3)}) + b"\x86b0"
    with pytest.raises(ValueError, match="attributes for something|the instruction POP"):
        TensorFiles(write_bin(tmp_path, attack + tensor()))


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (dict(shape=(10**6, 10**6), strides=(0, 0)), "repeats numbers"),
        (dict(shape=(2, 3), strides=(1, 1)), "repeats numbers"),
        (dict(shape=(5,), strides=(1,)), "ends at 4 in a storage of 4"),
        (dict(shape=(2,), strides=(10**8,)), "ends at 100000000"),
        (dict(shape=(2,), strides=(-1,)), "shape or strides are invalid"),
        (dict(offset=-4), "shape or strides are invalid"),
        (dict(shape=(0, 2**62), strides=(1, 1)), "an empty tensor of shape"),
        (dict(shape=(1,) * 40, strides=(1,) * 40), "shape or strides are invalid"),
        (dict(size=10**12, shape=(10**12,)), "has 16 bytes for 1000000000000 numbers"),
        (dict(storage="DoubleStorage"), "has 16 bytes for 4 numbers"),
        (dict(key="../0"), "KeyError"),
        (dict(storage="QInt8Storage"), "quantized weights, which kerasbert does not read"),
    ],
)
def test_a_tensor_is_as_large_as_its_bytes(claims, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        TensorFiles(write_bin(tmp_path, tensor(**claims)))


def test_compressed_and_encrypted_entries_are_refused(tmp_path):
    """Compressed, a megabyte is a gigabyte of zeros."""
    bomb = write_bin(tmp_path, tensor(size=10**6, shape=(10**6,)), 10**6, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="is compressed or encrypted"):
        TensorFiles(bomb)
    path = write_bin(tmp_path, tensor()) / "pytorch_model.bin"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="compressed or encrypted"):
        TensorFiles(tmp_path)


def test_flipped_bits_of_a_zip_are_found(tmp_path):
    path = write_bin(tmp_path, tensor()) / "pytorch_model.bin"
    content = path.read_bytes()
    place = content.index(np.float32(2.0).tobytes())
    path.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    with pytest.raises(ValueError, match="the checksum of x is wrong"):
        TensorFiles(tmp_path).read("x")


def test_instructions_are_counted(tmp_path):
    """An empty dict takes one byte of a pickle and sixty of memory."""
    with pytest.raises(ValueError, match="more than 400,000 instructions"):
        TensorFiles(write_bin(tmp_path, b"}" * 500_000))


@pytest.mark.parametrize(
    "instructions", [b"0", b"2", b"\x93", b"h\x07", b"a", b"t", b"\x85" * 3, b"Q", b"R", b"b", b"("]
)
def test_programs_that_run_dry_are_refused(instructions, tmp_path):
    import torch

    path = write_bin(tmp_path, instructions) / "pytorch_model.bin"
    with pytest.raises(ValueError, match="pytorch_model.bin"):
        TensorFiles(tmp_path)
    try:
        state = torch.load(path, weights_only=True)
    except Exception:  # torch raises errors of many kinds
        return
    assert not isinstance(state, dict) or not isinstance(state.get("x"), torch.Tensor)


def test_programs_of_torchscript_are_refused(tmp_path):
    with pytest.raises(ValueError, match="TorchScript"):
        TensorFiles(write_bin(tmp_path, tensor(), **{"constants.pkl": b"\x80\x02)."}))


# === Names ===


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/{}/outside.safetensors", "a/../../outside.safetensors"])
def test_shards_lie_in_the_folder(shard, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_tensors(tmp_path, {"x": np.ones(2, "float32")})
    os.rename(tmp_path / "model.safetensors", tmp_path / "outside.safetensors")
    index = {"weight_map": {"x": shard.format(tmp_path)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must name files inside its folder"):
        TensorFiles(folder)
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "link.safetensors"}}))
    with pytest.raises(ValueError, match="must name files inside its folder"):
        TensorFiles(folder)


def test_the_cache_of_the_hub_links_its_shards(tmp_path):
    """It keeps `snapshots/revision/name` as links to `blobs/hash`."""
    folder, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    write_tensors(blobs, {"x": np.ones(2, "float32")})
    os.rename(blobs / "model.safetensors", blobs / "d34d")
    (folder / "model-1.safetensors").symlink_to("../../blobs/d34d")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "model-1.safetensors"}}))
    np.testing.assert_array_equal(TensorFiles(folder).read("x"), [1, 1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"weight_map": {"x": 3}}', "`weight_map` in .* must be dict"),
        ('{"weight_map": {"x": "a/b"}}', "must name shards in .safetensors or .bin"),
        ('{"weight_map": {}}', "must map names to shards"),
        ('{"weight_map": ["x"]}', "`weight_map` in .* must be dict"),
        ("[]", "must contain a JSON object. Received: list"),
        ("[" * 100_000, "nested too deeply"),
        ('{"weight_map": {"x": "\\u0000.bin"}}', "must give names of files as strings"),
        (" " * 5_000_000, "must have at most 4,000,000 bytes"),
    ],
)
def test_an_index_is_checked(content, message, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        TensorFiles(tmp_path)


def test_tensors_without_names_are_refused(tmp_path):
    write_tensors(tmp_path, {"": np.ones(2, "float32")})
    with pytest.raises(ValueError, match="Every tensor must have a name"):
        TensorFiles(tmp_path)
