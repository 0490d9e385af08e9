"""LoRA, accumulation and trackers of the command `finetune`."""

import json
import re
import sys

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from kerasbert.training import adamw
from pipelines.finetune import finetune, main
from pipelines.runs.adapting import Lora
from pipelines.runs.task_options import Optimizer, Training
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize("merge", [True, False])
def test_lora_saves_a_merged_model_or_an_adapter(finished_run, labeled_file, tmp_path, merge):
    base = str(finished_run[0] / "model")
    lora = Lora(rank=4, alpha=8, targets=("query", "value", "outer"), merge=merge)
    metrics = finetune(
        base,
        labeled_file,
        tmp_path / "out",
        labeled_file,
        training=Training(epochs=20, batch_size=8),
        optimizer=Optimizer(learning_rate=0.03),
        lora=lora,
    )
    assert metrics["accuracy"] == 1.0
    adapter = tmp_path / "out" / "adapter" if merge else tmp_path / "out"
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == base
    with pytest.warns(UserWarning, match="new head"):
        model = TextClassifier.from_preset(base, labels=["cat", "dog"])
    model.load_adapter(adapter)
    texts = ["the cat sat 3", "the dog sat 4"]
    assert [answer["label"] for answer in model.classify(texts)] == ["cat", "dog"]
    assert (tmp_path / "out" / "config.json").exists() == merge
    code = re.search(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), flags=re.DOTALL)[1]
    assert ("kerasbert.load" in code) == merge
    if not merge:
        assert "TextClassifier.from_preset(\"model\", labels=['cat', 'dog'])\nmodel.load_adapter(\"out\")" in code
    if merge:
        merged = kerasbert.load(tmp_path / "out")
        np.testing.assert_allclose(merged.predict(texts), model.predict(texts), atol=1e-4)


def test_options_of_the_command():
    lora = "--lora.rank 8 --lora.alpha 16 --lora.targets query inner --lora.no-merge"
    values = main.parse(f"--model m {lora} --accumulation 4 --log wandb".split(), "kerasbert finetune")
    assert values["lora"] == Lora(rank=8, alpha=16.0, targets=("query", "inner"), merge=False)
    assert (values["accumulation"], values["log"]) == (4, "wandb")


def test_accumulation_is_the_update_of_the_whole_batch():
    sizes = dict(vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=8)
    found = []
    for accumulation in (1, 4):
        keras.utils.set_random_seed(0)
        model = TextClassifier(Bert(BertConfig(dropout=0.0, initializer_range=0.3, **sizes)), labels=2)
        ids = np.random.default_rng(0).integers(4, 20, (16, 6)).astype("int32")
        batches = model._batches({"token_ids": ids}, ids[:, 1] % 2, None, 8, epochs=2, seed=0, shuffle=True)
        split = batches.accumulated(accumulation)
        assert len(split) == accumulation * len(batches) == 4 * accumulation
        model.compile(adamw(1e-2, warmup=1, steps=4, accumulation=accumulation))
        model.fit(split, verbose=0)
        found.append([to_numpy(variable) for variable in model.trainable_variables])
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_allclose(parts, whole, atol=2e-5)
    with pytest.raises(ValueError, match="`accumulation` must divide `batch_size`. Received: accumulation=3"):
        batches.accumulated(3)


def test_trackers(finished_run, labeled_file, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    base, options = str(finished_run[0] / "model"), dict(training=Training(epochs=2, batch_size=8, accumulation=2))
    finetune(base, labeled_file, tmp_path / "out", labeled_file, log="tensorboard", **options)
    events = EventAccumulator(str(tmp_path / "out" / "logs" / "tensorboard")).Reload()
    assert {"loss", "val_accuracy"} <= set(events.Tags()["scalars"])
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"needs the package {name}. Install it: pip install {name}"):
            finetune(base, labeled_file, tmp_path / name, log=name, **options)
