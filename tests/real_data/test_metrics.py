"""Scores equal those of the official scripts to the last digit."""

import json

import pytest

from kerasbert import metrics


@pytest.mark.parametrize("name", ["1.1__Match", "v2.0__nlnet"])
def test_squad_equals_the_official_scripts_to_the_last_digit(name, shared_data):
    folder = shared_data / "metric_oracles" / "squad"
    expected = json.loads((folder / "expected_scores.json").read_text())
    file = next(file for file in expected if file.startswith(name))
    predictions = json.loads((folder / "predictions" / file).read_text())
    assert metrics.squad(folder / expected[file]["dataset"], predictions) == expected[file]["scores"]


def test_entities_equal_conlleval(shared_data):
    folder = shared_data / "metric_oracles" / "conlleval"
    blocks = (folder / "output.txt").read_text().strip().split("\n\n")
    words = [[line.split() for line in block.split("\n") if line.strip()] for block in blocks]
    found = metrics.entities([[w[-2] for w in s] for s in words], [[w[-1] for w in s] for s in words])
    lines = (folder / "result.txt").read_text().splitlines()
    assert (
        f"accuracy: {100 * found['accuracy']:6.2f}%; precision: {100 * found['precision']:6.2f}%; "
        f"recall: {100 * found['recall']:6.2f}%; FB1: {100 * found['f1']:6.2f}"
    ) == lines[1]
    for line, (kind, scores) in zip(lines[2:], found["types"].items(), strict=True):
        assert line.strip().startswith(
            f"{kind}: precision: {100 * scores['precision']:6.2f}%; recall: {100 * scores['recall']:6.2f}%; "
            f"FB1: {100 * scores['f1']:6.2f}"
        )
