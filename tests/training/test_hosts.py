"""Two real processes train together: what each reads, what they compute, what is left when one of them is killed."""

import json

import pytest

from benchmarks.devices import hosts

STEPS, KILLED_AFTER = 4, 3


@pytest.mark.backends("jax")
def test_two_processes_train_as_one_and_end_together(tmp_path):
    """Weights are divided among the four devices of both. One process is killed, and one device continues the run."""
    whole = hosts.train("bert", "alone", STEPS, tmp_path / "whole")
    folder = tmp_path / "kept"
    ended = hosts.run("bert", "fsdp", STEPS, folder, processes=2, devices=2, stop=KILLED_AFTER)
    (code, output), (killed, _) = ended
    assert killed == -9 and code not in (0, -9), ended
    assert "process 1 on" in output.rpartition("HostLost: ")[2].partition(" has ended")[0], output
    steps = sorted(int(path.stem[5:]) for path in folder.glob("checkpoints/*.json"))
    assert steps and steps[-1] >= KILLED_AFTER - 1
    assert json.loads((folder / f"checkpoints/step_{steps[-1]:08d}.json").read_text())["arrays"] == "orbax"
    rest = hosts.train("bert", "alone", STEPS, folder)
    assert list(rest["losses"]) == list(range(steps[-1] + 1, STEPS + 1))
    for step, loss in rest["losses"].items():
        assert loss == pytest.approx(whole["losses"][step], rel=1e-5)
