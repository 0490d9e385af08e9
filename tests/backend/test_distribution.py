"""Which of several processes writes."""

import json

import keras

from kerasbert.backend.hosts import is_first_process


def test_the_first_of_several_processes(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert is_first_process()
    backend = keras.backend.backend()
    if backend == "tensorflow":
        workers, chief = {"worker": ["a:1", "b:1"]}, {"chief": ["c:1"], "worker": ["a:1"]}
        for cluster, kind, index, first in (
            (workers, "worker", 0, True),
            (workers, "worker", 1, False),
            (chief, "chief", 0, True),
            (chief, "worker", 0, False),
        ):
            monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
            assert is_first_process() == first
        return
    if backend == "jax":
        import jax

        monkeypatch.setattr(jax, "process_index", lambda: 1)
    else:
        import torch.distributed

        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert not is_first_process()
