"""Warnings are issued at the line of the user's program."""

import warnings

import pytest

from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.one_backend


def test_a_warning_of_a_folder_points_to_the_line_that_loads_it():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        TextClassifier.from_preset("bert_mini_en", labels=3)
    (warning,) = [one for one in found if "new head" in str(one.message)]
    assert warning.filename == __file__
