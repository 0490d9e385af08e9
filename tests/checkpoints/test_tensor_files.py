"""Weight files: single, sharded, and torch's two formats, whole and damaged."""

import json
import pickle
import zipfile

import numpy as np
import pytest

from kerasbert.checkpoints.tensor_files import TensorFiles, write_tensors

pytestmark = pytest.mark.one_backend

TENSORS = {
    "a.weight": np.arange(24, dtype="float32").reshape(4, 6),
    "a.bias": np.linspace(-1, 1, 6, dtype="float32"),
    "ids": np.arange(5, dtype="int64"),
    "empty": np.zeros((0, 3), "float32"),
    "scalar": np.float32(2.5).reshape(()),
}


def assert_holds(files, expected):
    assert set(files.keys()) == set(expected)
    for name, array in expected.items():
        found = files.read(name)
        assert found.shape == array.shape and found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_single_file_is_what_safetensors_reads(tmp_path):
    from safetensors import safe_open

    write_tensors(tmp_path, TENSORS)
    assert_holds(TensorFiles(tmp_path), TENSORS)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(file.get_tensor(name), array)


def test_arrays_are_written_in_their_order_in_memory_or_not(tmp_path):
    tensors = {"turned": TENSORS["a.weight"].T, "half": np.ones(3, "float16"), "flags": np.array([True, False])}
    write_tensors(tmp_path, tensors)
    files = TensorFiles(tmp_path)
    np.testing.assert_array_equal(files.read("turned"), tensors["turned"])
    np.testing.assert_array_equal(files.read("flags"), tensors["flags"])
    assert files.read("half").dtype == "float32"


def test_bfloat16_round_trip(tmp_path):
    import ml_dtypes

    write_tensors(tmp_path, {"x": np.array([1.0, -2.5, 3.140625]).astype(ml_dtypes.bfloat16)})
    found = TensorFiles(tmp_path).read("x")
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, np.array([1.0, -2.5, 3.140625], "float32"))


def test_shards_and_index(tmp_path):
    write_tensors(tmp_path, TENSORS)
    write_tensors(tmp_path, TENSORS, max_shard_size=100)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in TENSORS.values())
    assert set(index["weight_map"]) == set(TENSORS)
    assert_holds(TensorFiles(tmp_path), TENSORS)
    write_tensors(tmp_path, {"other": TENSORS["ids"]}, max_shard_size="1KB")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    with pytest.raises(ValueError, match="max_shard_size"):
        write_tensors(tmp_path, TENSORS, max_shard_size="5 elephants")


def test_damaged_and_missing_shards_are_named(tmp_path):
    write_tensors(tmp_path, TENSORS, max_shard_size=100)
    second = tmp_path / "model-00002-of-00002.safetensors"
    content = second.read_bytes()
    second.write_bytes(content[:-8])
    with pytest.raises(ValueError, match="model-00002-of-00002.safetensors is not a complete"):
        TensorFiles(tmp_path)
    second.unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002.safetensors"):
        TensorFiles(tmp_path)
    second.write_bytes(content)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("a.bias", "b.bias"))
    with pytest.raises(ValueError, match="without b.bias"):
        TensorFiles(tmp_path)
    index.write_text("{}")
    with pytest.raises(ValueError, match="weight_map"):
        TensorFiles(tmp_path)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="pytorch_model.bin"):
        TensorFiles(tmp_path)


# === torch ===


def torch_tensors():
    import torch

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "plain": base,
        "turned": base.T,
        "part": base[1:, 2:5],
        "alias": base,
        "half": torch.linspace(-1, 1, 5).half(),
        "brain": torch.linspace(-1, 1, 5).bfloat16(),
        "long": torch.arange(3),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(1.5),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_are_read_in_both_formats(zipped, tmp_path):
    import torch

    tensors = torch_tensors()
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    files = TensorFiles(tmp_path)
    assert set(files.keys()) == set(tensors)
    for name, tensor in tensors.items():
        wanted = tensor.detach().float() if tensor.dtype in (torch.half, torch.bfloat16) else tensor.detach()
        np.testing.assert_array_equal(files.read(name), wanted.numpy(), err_msg=name)
        assert files.read(name).dtype == wanted.numpy().dtype


@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts_of_modules_and_sharded_bin(zipped, tmp_path):
    import torch

    state = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).state_dict()
    where = {}
    for number, names in enumerate((["0.weight"], ["0.bias", "1.weight", "1.bias"]), 1):
        shard = f"pytorch_model-{number:05}-of-00002.bin"
        part = type(state)((name, state[name]) for name in names)
        part._metadata = state._metadata
        torch.save(part, tmp_path / shard, _use_new_zipfile_serialization=zipped)
        where |= dict.fromkeys(names, shard)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert_holds(TensorFiles(tmp_path), {name: tensor.numpy() for name, tensor in state.items()})


@pytest.mark.parametrize("zipped", [True, False])
def test_truncated_torch_files(zipped, tmp_path):
    import torch

    path = tmp_path / "pytorch_model.bin"
    torch.save(torch_tensors(), path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for cut in (len(content) - 8, len(content) // 2, 40, 0):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="not a complete torch.save file|damaged"):
            TensorFiles(tmp_path)


class Evil:
    def __reduce__(self):
        return (eval, ("1/0",))


def in_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)


def test_anything_but_tensors_is_refused_and_named(tmp_path):
    import torch

    path = tmp_path / "pytorch_model.bin"
    in_zip(path, pickle.dumps({"x": Evil()}, protocol=2))
    with pytest.raises(ValueError, match="asks for __builtin__.eval, which was refused"):
        TensorFiles(tmp_path)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="asks for builtins.eval, which was refused"):
        TensorFiles(tmp_path)
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match="asks for torch.nn.modules.linear.Linear, which was refused"):
        TensorFiles(tmp_path)
    torch.save({"model": {"w": torch.ones(2)}, "epoch": 3}, path)
    with pytest.raises(ValueError, match="'model' of type dict"):
        TensorFiles(tmp_path)
    torch.save([torch.ones(2)], path)
    with pytest.raises(ValueError, match="a dict of tensors by name. Received: list"):
        TensorFiles(tmp_path)


def test_a_tensor_may_not_reach_outside_its_storage(tmp_path):
    """A forged stride would read the memory of the process."""
    import torch

    path = tmp_path / "pytorch_model.bin"
    torch.save({"x": torch.arange(6.0).reshape(2, 3)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.endswith("data.pkl"))
    assert entries[name].count(b"K\x02K\x03\x86") == 1
    entries[name] = entries[name].replace(b"K\x02K\x03\x86", b"K\x02K\x7f\x86")
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
    with pytest.raises(ValueError, match="in a storage of 6 numbers"):
        TensorFiles(tmp_path)
