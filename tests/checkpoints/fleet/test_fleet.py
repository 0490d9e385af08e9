"""Folders like those of the most used encoders: equal in transformers or sentence-transformers and here, both ways."""

import pytest

import kerasbert
from tests.checkpoints.fleet.comparison import compare
from tests.checkpoints.fleet.folders import write_checkpoint
from tests.checkpoints.fleet.records import CHECKPOINTS

pytestmark = [
    pytest.mark.one_backend,
    # Published files have options that transformers reports, such as fields of tokenizers that no class reads.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    """transformers would start threads for each of the tiny models."""
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")


def named(record):
    return record.name.split(",")[0]


@pytest.mark.parametrize("record", [record for record in CHECKPOINTS if not record.refused], ids=named)
def test_tokens_and_outputs_are_equal_both_ways(record, tmp_path):
    compare(record, tmp_path)


@pytest.mark.parametrize("record", [record for record in CHECKPOINTS if record.refused], ids=named)
def test_what_would_change_the_outputs_is_refused_by_name(record, tmp_path):
    write_checkpoint(record, tmp_path)
    with pytest.raises(ValueError, match=record.refused):
        kerasbert.load(tmp_path)


def test_most_checkpoints_are_read():
    assert len([record for record in CHECKPOINTS if not record.refused]) >= 60
    assert len({record.name for record in CHECKPOINTS}) == len(CHECKPOINTS)
