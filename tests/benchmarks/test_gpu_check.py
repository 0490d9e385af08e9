"""The check of a machine with a GPU: its results, time limits and pieces, and its measures at tiny sizes."""

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.devices import check, pack, packages, parity, parts, pretraining, transformers_step
from benchmarks.devices.parts import FAILED, UNFINISHED, WRONG, Part, Runner, share_of
from benchmarks.devices.pieces import SUMS, how_to_join, join, split
from benchmarks.devices.programs import attention_calls
from benchmarks.devices.results import Results, peak_of
from kerasbert.models import Bert, BertConfig

pytestmark = pytest.mark.one_backend

SCRIPT = Path(check.__file__).parent / "gpu_check.sh"


# === Pieces ===


@pytest.fixture
def pieces(tmp_path):
    path = tmp_path / "checkpoint.tar"
    path.write_bytes(bytes(range(256)) * 10)
    return path, split(path, tmp_path / "pieces", size=1_000)


def test_a_file_in_pieces_is_joined(pieces, tmp_path):
    path, parts = pieces
    assert [(part.name, part.stat().st_size) for part in parts] == [
        ("checkpoint.tar.000", 1_000),
        ("checkpoint.tar.001", 1_000),
        ("checkpoint.tar.002", 560),
    ]
    (tmp_path / "joined").mkdir()
    join(tmp_path / "pieces", tmp_path / "joined" / path.name)
    assert (tmp_path / "joined" / path.name).read_bytes() == path.read_bytes()


def test_the_printed_command_joins_the_pieces(pieces, tmp_path):
    path, _ = pieces
    command = how_to_join(path.name).split(", or:")[0]
    subprocess.run(["sh", "-ec", command], cwd=tmp_path / "pieces", check=True, capture_output=True)
    assert (tmp_path / "pieces" / path.name).read_bytes() == path.read_bytes()


def test_fewer_pieces_replace_those_of_an_earlier_file(pieces, tmp_path):
    path, parts = pieces
    path.write_bytes(b"short")
    assert split(path, tmp_path / "pieces", size=1_000) == parts[:1]
    assert sorted(file.name for file in (tmp_path / "pieces").iterdir()) == [SUMS, "checkpoint.tar.000"]


@pytest.mark.parametrize(
    "harm, said",
    [
        (lambda piece: piece.unlink(), "checkpoint.tar.001 of checkpoint.tar is missing in .*There must be 3"),
        (lambda piece: piece.write_bytes(b"other"), "checkpoint.tar.001 of checkpoint.tar is damaged"),
    ],
)
def test_pieces_that_do_not_fit_are_not_joined(pieces, tmp_path, harm, said):
    harm(pieces[1][1])
    target = tmp_path / "joined" / "checkpoint.tar"
    with pytest.raises(ValueError, match=said):
        join(tmp_path / "pieces", target)
    assert not target.exists()


# === Results and parts ===


def test_a_check_continues_with_what_is_missing(tmp_path, capsys):
    path, called = tmp_path / "check.jsonl", []

    def measured(name, ok):
        def function():
            called.append(name)
            if name == "breaks":
                raise ValueError("no kernel")
            return ok, f"{name}\nis measured", {"milliseconds": 3}

        return function

    def all_of(device):
        results = Results(path, device)
        return [results.measure(name, measured(name, ok)) for name, ok in (("a", True), ("b", False), ("breaks", True))]

    assert all_of("H100") == [True, False, False]
    assert capsys.readouterr().out.splitlines() == [
        "ok    a: a is measured",
        "FAIL  b: b is measured",
        "FAIL  breaks: ValueError: no kernel",
    ]
    assert json.loads(path.read_text().splitlines()[0]) | {"seconds": 0} == {
        "cell": "a", "device": "H100", "ok": True, "text": "a\nis measured", "milliseconds": 3, "seconds": 0,
    }  # fmt: skip
    path.write_text(path.read_text() + '{"cell": "b", "dev')  # an earlier process was killed while it wrote
    assert all_of("H100") == [True, False, False]
    assert called == ["a", "b", "breaks", "b", "breaks"]
    assert all_of("A100") == [True, False, False]
    assert called[5:] == ["a", "b", "breaks"]
    assert sorted(Results(path, "H100").rows()) == ["a", "b", "breaks"]


PARTS = {
    "right": "print('measured', flush=True)",
    "wrong": f"raise SystemExit({WRONG})",
    "crashes": "raise RuntimeError('the kernel is missing')",
    "slow": "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)",
}


@pytest.fixture
def part(tmp_path):
    for name, source in PARTS.items():
        (tmp_path / f"{name}_part.py").write_text(source)
    return lambda name, limit=30: Part(name, (f"{name}_part",), limit, {"PYTHONPATH": str(tmp_path)})


def test_a_part_that_fails_stops_no_other(tmp_path, part, capsys):
    results = Results(tmp_path / "check.jsonl", "CPU")
    start = time.monotonic()
    groups = [[part("slow", 0.5), part("crashes")], [part("wrong"), part("right")]]
    assert Runner(results, 60).run(groups, at_once=2) == FAILED
    assert time.monotonic() - start < 30
    rows = results.rows()
    assert {cell: row["ok"] for cell, row in rows.items()} == {
        "part slow": False, "part crashes": False, "part wrong": False, "part right": True,
    }  # fmt: skip
    assert rows["part slow"]["text"].startswith("stopped at its limit of 0.5 s; see ")
    assert rows["part crashes"]["text"].endswith("crashes.log: RuntimeError: the kernel is missing")
    assert rows["part wrong"]["text"] == "has results that are wrong"
    capsys.readouterr()
    assert Runner(results, 60).run([[part("right")]], at_once=1) == 0
    assert not capsys.readouterr().out  # it was not run again


def test_what_there_is_no_time_for_is_left(tmp_path, part, capsys, monkeypatch):
    results = Results(tmp_path / "check.jsonl", "CPU")
    assert Runner(results, 1).run([[part("right")]], at_once=1) == UNFINISHED
    assert capsys.readouterr().out == "left  part right: no time. Run the same command again.\n"
    monkeypatch.setattr(parts, "LEAST_SECONDS", 0)
    assert Runner(results, 0.5).run([[part("slow", 30)]], at_once=1) == UNFINISHED
    assert not results.rows()  # it has not failed: its own limit was not reached


def test_shares_are_all_cells():
    shares = [share_of("abcdefg", f"{number}/3") for number in range(3)]
    assert shares == [list("adg"), list("be"), list("cf")]


def test_parts_of_the_check_are_modules_with_their_own_names():
    for tiny in (True, False):
        found = [part for group in check.parts(tiny) for part in group]
        assert len({part.name for part in found}) == len(found)
        assert {part.arguments[0] for part in found} == {
            f"benchmarks.devices.{name}" for name in ("steps", "parity", "attention", "transformers_step")
        }
        assert [[part.name for part in group] for group in check.parts(tiny)[1:]] == [
            ["transformers_step jax"],  # nothing else runs while speed is measured
            ["transformers_step torch"],
        ]


@pytest.mark.parametrize("arguments", [[], ["chekc"]])
def test_commands_of_the_script(arguments):
    done = subprocess.run(["sh", str(SCRIPT), *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        64,
        "usage: gpu_check.sh pack FOLDER | check [--tiny] | pretrain [--tiny]\n",
    )


# === The packed folder ===


def test_what_is_packed():
    taken = ["kerasbert/layers/attention.py", "pipelines/pretrain.py", "benchmarks/devices/gpu_check.sh", "LICENSE"]
    left = [
        "tests/goldens/bert.safetensors",
        "saved_models/README.md",
        "benchmarks/studies/plateau/rows.jsonl",
        "docs/index.md",
    ]
    assert [name for name in taken + left if pack.is_taken(name)] == taken


def test_missing_packages_need_the_packed_folder(tmp_path, monkeypatch):
    assert packages.missing({"keras": "keras", "nothing": "a_module_that_nobody_has"}) == ["nothing"]
    monkeypatch.setattr(packages, "PACKAGES", {"nothing": "a_module_that_nobody_has"})
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit, match="Missing packages: nothing"):
        packages.install_missing(tmp_path / "wheels", tmp_path / "target")


# === Measures ===


def test_calls_of_attention_are_counted():
    text = """
      %a = custom-call(%q), custom_call_target="__cudnn$fmhaSoftmax", backend_config={}
      %b = custom-call(%q), custom_call_target="__cudnn$fmhaScaleBiasSoftmaxBackward"
      %c = custom-call(%q), custom_call_target="__gpu$xla.gpu.triton", backend_config={name = "_forward_kernel"}
      %d = custom-call(%q), custom_call_target="__gpu$xla.gpu.triton", backend_config={name = "_backward_kernel"}
      %e = custom-call(%q), custom_call_target="__cublas$gemm"
    """
    assert attention_calls(text) == {"cudnn_forward": 1, "cudnn_backward": 1, "flash_forward": 1, "flash_backward": 1}


def test_errors_are_relative_and_of_real_tokens():
    real = np.array([[True, False]])
    single = {"sequence_output": np.array([[[3.0, 4.0], [1.0, 1.0]]]), "pooled_output": np.array([[2.0, 0.0]])}
    half = {"sequence_output": np.array([[[3.0, 4.5], [9.0, 9.0]]]), "pooled_output": np.array([[2.0, 1.0]])}
    assert parity.relative_errors(half, single, real) == pytest.approx({"sequence_output": 0.1, "pooled_output": 0.5})


def test_every_family_is_compared():
    names = {cls.__name__ for cls in parity.backbones().values()}
    assert {"Bert", "T5", "ModernBert", "XLNet", "TransformerXL", "Elmo"} <= names and len(names) == 28


def test_parity_of_bert():
    config = parity.tiny_config(Bert)
    assert config == BertConfig(
        vocabulary_size=200, num_layers=2, num_heads=2, hidden_dim=128, feed_forward_dim=256, max_length=96,
        initializer_range=0.1,
    )  # fmt: skip
    right, _, values = parity.parity(lambda dtype: Bert(config, dtype=dtype))
    assert right and 0 < max(values["errors"].values()) < 0.03

    def otherwise(dtype):
        """A backbone that computes something else in bfloat16."""
        return Bert(config if dtype == "float32" else BertConfig(**{**vars(config), "activation": "relu"}), dtype=dtype)

    right, _, values = parity.parity(otherwise)
    assert not right and max(values["errors"].values()) > parity.TOLERANCE


def test_one_line_of_a_comparison():
    row = dict(ratio=1.5, lowest=1.4, highest=1.6, ours_seconds=0.1, theirs_seconds=0.15, flops=30e12)
    row["notes"] = {"flash_forward": 12}
    right, text, _ = transformers_step.result_of(row, 989)
    assert right and text == (
        "1.50 times as fast (1.40 to 1.60), 300.0 against 200.0 TFLOP/s, 30.3% against 20.2% of 989 TFLOP/s; "
        "{'flash_forward': 12}"
    )
    assert transformers_step.result_of({"skipped": "transformers: out of memory"}, 989)[:2] == (
        False,
        "transformers: out of memory",
    )
    assert (peak_of("NVIDIA H100 80GB HBM3"), peak_of("NVIDIA L4"), peak_of("CPU")) == (989, 121, None)


def test_the_newest_checkpoint_is_written_in_pieces(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    assert pretraining.write_pieces(run, tmp_path) == (False, "the run has no checkpoint", {})
    for step in (8, 12):
        (run / "checkpoints" / f"step_{step:08}.json").write_text("{}")
        (run / "checkpoints" / f"step_{step:08}.safetensors").write_bytes(bytes([step]) * 100)
    right, text, values = pretraining.write_pieces(run, tmp_path)
    assert right and "in 1 pieces; to join them: sha256sum --check" in text
    (tmp_path / "joined").mkdir()
    join(tmp_path, tmp_path / "joined" / "checkpoint.tar")
    with tarfile.open(tmp_path / "joined" / "checkpoint.tar") as file:
        assert file.getnames() == ["step_00000012.json", "step_00000012.safetensors"]
        assert file.extractfile("step_00000012.safetensors").read() == bytes([12]) * 100
    assert values == {"bytes": (tmp_path / "joined" / "checkpoint.tar").stat().st_size}
