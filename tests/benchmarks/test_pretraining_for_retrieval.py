"""Pretraining for retrieval: the tables of the arms."""

import pytest

from benchmarks.studies.pretraining_for_retrieval import report
from benchmarks.studies.pretraining_for_retrieval.run import ARMS, cells

pytestmark = pytest.mark.one_backend


def row(arm: str, seed: int, scifact: float, vaswani: float) -> dict:
    scores = {"scifact": {"ndcg@10": scifact}, "vaswani": {"ndcg@10": vaswani}}
    return {"arm": arm, "seed": seed, "scores": scores, "updates": 400, "passes": 3}


def test_arms_are_compared_with_both_baselines_seed_by_seed(tmp_path):
    """tsdae minus mlm is 0.1, 0.2, 0.1 on SciFact: t = 4, p = 0.0572, times four tests after Holm."""
    rows = [row("mlm", seed, 0.1, 0.1) for seed in range(3)]
    rows += [row("tsdae", seed, score, 0.1) for seed, score in enumerate((0.2, 0.3, 0.2, 0.9))]
    rows += [{**row("tsdae", 0, 0.5, 0.5), "passes": 8}]  # of other settings
    report.write(rows, list(ARMS), 400, 3, tmp_path / "report.md")
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "| mlm | 3 | 0.100 ± 0.000 |  |  |  |  |" in lines
    assert "| tsdae | 4 | 0.400 ± 0.168 | +0.133 | 0.114 |  |  |" in lines
    assert "| tsdae | 4 | 0.100 ± 0.000 | +0.000 | 1.000 |  |  |" in lines


def test_the_better_baseline_is_compared_with_the_other_one_once(tmp_path):
    rows = [row(arm, seed, score, 0.1) for arm, score in (("mlm", 0.1), ("mlm, mean", 0.2)) for seed in range(2)]
    report.write(rows, list(ARMS), 400, 3, tmp_path / "report.md")
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "| mlm | 2 | 0.100 ± 0.000 |  |  |  |  |" in lines
    assert "| mlm, mean | 2 | 0.200 ± 0.000 | +0.100 | < 0.001 |  |  |" in lines


def test_cells_have_all_arms_with_a_seed_before_the_next_seed():
    assert cells()[:2] == ["none, seed 0", "none, mean, seed 0"] and cells()[len(ARMS)] == "none, seed 1"
