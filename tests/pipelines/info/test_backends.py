"""`info` on every backend: a trace gives the same numbers on all of them."""

from pipelines.info.command import info


def test_memory_and_operations():
    found = info("bert_tiny", length=64, dtypes=("float32",))
    weights, memory = found["weights"]["total"], found["memory"]["float32"]["train"]
    assert found["operations"]["forward"]["per_row"] == 113_886_208
    assert memory["gradients"] == 4 * weights and 0 <= memory["optimizer"] - 8 * weights < 64
