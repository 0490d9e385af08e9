"""Folders that version 0.1 wrote: models and corpora load, and an interrupted run resumes to the same weights."""

import shutil

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus
from pipelines.pretrain import pretrain
from tests.conftest import REPOSITORY
from tests.goldens.make_version_0_1 import RUN, SETTINGS

pytestmark = pytest.mark.one_backend

GOLDENS = REPOSITORY / "tests" / "goldens" / "version_0_1"


# Numbers of the recipes that were others in version 0.1.
FORMER = dict.fromkeys(["bert.tiny", "electra.tiny"], ("schedule.peak=2e-3", "local_start={}"))


def weights_of(model):
    return [(weight.path, keras.ops.convert_to_numpy(weight)) for weight in model.weights if "seed" not in weight.path]


@pytest.mark.parametrize("name", SETTINGS)
def test_folders_of_version_0_1(name, tmp_path):
    folder = GOLDENS / name.removesuffix(".tiny")
    shutil.copytree(folder, tmp_path / "copy")
    folder = tmp_path / "copy"
    model = weights_of(kerasbert.load(folder / "model"))
    saved = weights_of(keras.saving.load_model(folder / "model.keras"))
    for (path, found), (_, expected) in zip(saved, model, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=path)
    Corpus.open(folder / "corpus").verify()

    settings = (*RUN, *SETTINGS[name], *FORMER.get(name, ()))
    last = pretrain(folder / "corpus", folder / "run", recipe=name, report_every=2, set=settings)
    assert last["step"] == 4
    resumed = weights_of(kerasbert.load(folder / "run" / "model"))
    for (path, found), (_, expected) in zip(resumed, model, strict=True):
        # To rounding: the goldens were made on another processor.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=path)
