"""Several tasks over one encoder: what a step trains, who comes how often, and what is saved."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import TaskBatches
from kerasbert.data.tasks.choices import ranking_examples
from kerasbert.tasks import MultipleChoice, MultiTask, TextClassifier
from tests.models.reference import to_numpy

PLACES = ["Ann lives in Rome .", "Bob lives in Bonn .", "in Rome lives Bob", "Ann met Bob in Bonn"]
WORDS = [text.split() for text in PLACES]
DATA = {
    "place": (PLACES * 4, ["rome", "bonn", "rome", "bonn"] * 4),
    "same": ([("Ann lives in Rome .", "Bob lives in Bonn ."), ("in Rome lives Bob", "Bob lives")] * 2, [0, 1] * 2),
    "words": (PLACES, [len(words) / 2 for words in WORDS]),
    "names": (WORDS, [["NAME" if word in ("Ann", "Bob") else "O" for word in words] for words in WORDS]),
    "who": ([("who lives in Bonn ?", "Bob lives in Bonn .")] * 4, [("Bob", 0)] * 4),
    "best": ([("where lives Ann ?", ["Ann lives in Rome .", "a cat met a dog"])] * 4, [0] * 4),
}  # fmt: skip
TASKS = {
    "place": {"labels": ["bonn", "rome"]},
    "same": {"labels": 2, "answer_steps": 3},
    "words": {"problem": "score"},
    "names": {"task": "TokenClassifier", "labels": ["O", "NAME"]},
    "who": {"task": "QuestionAnswerer"},
    "best": {"task": "MultipleChoice"},
}


@pytest.fixture
def model(tiny_backbone, tokenizer):
    return MultiTask(tiny_backbone(), TASKS, tokenizer=tokenizer)


@pytest.mark.one_backend
def test_all_tasks_learn_and_answer_after_it(model, tmp_path):
    model.compile(keras.optimizers.Adam(5e-3))
    history = model.fit(DATA, batch_size=4, epochs=30, verbose=0, validation_data=DATA).history
    assert len(history["loss"]) == 30
    assert int(to_numpy(model.optimizer.iterations)) == 30 * (4 + 5)
    for name in TASKS:
        assert history[f"{name}_loss"][-1] < 0.3 * history[f"{name}_loss"][0], name
    assert history["val_place_accuracy"][-1] == history["val_best_accuracy"][-1] == 1.0
    assert history["val_who_start_accuracy"][-1] == 1.0

    tasks = model.tasks
    assert [answer["label"] for answer in tasks["place"].classify(PLACES)] == ["rome", "bonn", "rome", "bonn"]
    assert [answer["label"] for answer in tasks["same"].classify(DATA["same"][0][:2])] == ["LABEL_0", "LABEL_1"]
    assert tasks["names"].tag([WORDS[3]])[0]["labels"] == ["NAME", "O", "NAME", "O", "O"]
    assert tasks["who"].answer(DATA["who"][0][0])["text"] == "Bob"
    assert tasks["best"].choose(DATA["best"][0])[0]["choice"] == 0
    outputs = model.predict({name: x for name, (x, _) in DATA.items()}, verbose=0)
    assert outputs["words"][:, 0] == pytest.approx([2.5, 2.5, 2.0, 2.5], abs=0.5)

    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for again in (kerasbert.load(tmp_path / "preset"), keras.saving.load_model(tmp_path / "model.keras")):
        assert again.arguments() == model.arguments()
        found = again.predict({name: x for name, (x, _) in DATA.items()}, verbose=0)
        for name in TASKS:
            keras.tree.map_structure(np.testing.assert_array_equal, found[name], outputs[name])
    tasks["place"].save_to_preset(tmp_path / "place")
    assert kerasbert.load(tmp_path / "place").classify(PLACES[0])["label"] == "rome"
    with pytest.warns(UserWarning, match="new head"):
        fresh = TextClassifier.from_preset(tmp_path / "preset", labels=3)
    np.testing.assert_array_equal(*(to_numpy(m.backbone.token_embedding.embeddings) for m in (fresh, model)))


@pytest.mark.one_backend
def test_losses_are_those_of_the_tasks_alone(model):
    """One evaluation of all tasks gives the numbers that each gives by itself; the loss is a mean over steps."""
    model.compile("sgd")
    found = model.evaluate(DATA, batch_size=4, verbose=0, return_dict=True)
    alone, steps = {}, {"place": 4}
    for name, task in model.tasks.items():
        task.compile("sgd")
        alone[name] = task.evaluate(*DATA[name], batch_size=4, verbose=0, return_dict=True)
        assert found[f"{name}_loss"] == pytest.approx(alone[name]["loss"], rel=1e-5), name
    assert found["place_accuracy"] == pytest.approx(alone["place"]["accuracy"])
    assert found["who_end_accuracy"] == pytest.approx(alone["who"]["end_accuracy"])
    filled = model.evaluate({"words": DATA["words"]}, batch_size=6, verbose=0, return_dict=True)
    assert filled["loss"] == pytest.approx(alone["words"]["loss"], rel=1e-5)
    assert filled["words_loss"] == pytest.approx(alone["words"]["loss"], rel=1e-5)
    mean = sum(steps.get(name, 1) * alone[name]["loss"] for name in TASKS) / 9
    assert found["loss"] == pytest.approx(mean, rel=1e-5)
    model.compile("sgd", loss_weights={"words": 2.0})
    weighted = model.evaluate(DATA, batch_size=4, verbose=0, return_dict=True)
    assert weighted["loss"] == pytest.approx(mean + alone["words"]["loss"] / 9, rel=1e-5)


@pytest.mark.one_backend
def test_a_step_trains_the_encoder_and_one_head(model):
    model.compile(keras.optimizers.SGD(0.1))
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    batches = model.task_batches({"names": DATA["names"]}, batch_size=4)
    model.fit(batches, verbose=0)
    moved = {v.path for v in model.trainable_variables if not np.array_equal(to_numpy(v), before[v.path])}
    heads = {path.split("/")[0] for path in moved if path.split("/")[0] in TASKS}
    assert heads == {"names"} and any(path.endswith("block_0/attention/query/kernel") for path in moved)


@pytest.mark.backends("jax", "torch")
def test_programs_are_compiled_once_for_every_task(model, monkeypatch):
    """Where steps are compiled, further passes trace nothing anew."""
    calls, call = [], MultiTask.call
    monkeypatch.setattr(MultiTask, "call", lambda self, inputs: calls.append(1) or call(self, inputs))
    model.compile("sgd")
    model.fit(DATA, batch_size=4, epochs=2, verbose=0)
    first = len(calls)
    model.fit(DATA, batch_size=4, epochs=3, verbose=0)
    if keras.backend.backend() == "torch":
        assert (first, len(calls)) == (18, 45)
    else:
        assert first <= 2 * (len(TASKS) + 1) and len(calls) == first


@pytest.mark.one_backend
def test_every_batch_of_every_task_comes_once_a_pass(model):
    sizes = {"place": 4, **dict.fromkeys(list(TASKS)[1:], 1)}
    batches = model.task_batches(DATA, batch_size=4, epochs=2, seed=3, shuffle=True)
    assert len(batches) == 18
    names = [batches.part_of(step)[0] for step in range(18)]
    for half in (names[:9], names[9:]):
        assert {name: half.count(name) for name in TASKS} == sizes
    assert names[:9] != names[9:] and names != sorted(names)
    seen = [row for i in range(9) if names[i] == "place" for row in batches[i][0]["tasks"]["place"]["token_ids"]]
    assert len(seen) == 16
    for step in range(18):
        x, y, weight = batches[step]
        assert {name for name in TASKS if len(x["tasks"][name]["token_ids"])} == {names[step]}
        assert set(y) == set(weight) == set(TASKS) and x["task"].tolist() == [list(TASKS).index(names[step])] * 4
    rates = model.task_batches(DATA, batch_size=4, exponent=0.0, shuffle=True).rates
    assert rates == pytest.approx(dict.fromkeys(TASKS, 1 / 6))
    assert isinstance(batches, TaskBatches) and batches.shard(1, 2)[0][0]["task"].shape == (2,)


@pytest.mark.one_backend
def test_shares_of_glue():
    """Batches of 32 and passes over all of them: 29,663 steps, of which MNLI has 41 percent."""

    class Sized(kerasbert.data.ExampleBatches):
        def __init__(self, size):
            super().__init__({"token_ids": np.zeros((1, 1), "int32")}, np.zeros(1), batch_size=32)
            self._items = size

    sizes = dict(mnli=12_272, qqp=11_371, qnli=3_274, sst2=2_105, cola=268, stsb=180, mrpc=115, rte=78)
    batches = TaskBatches({name: Sized(size) for name, size in sizes.items()})
    assert len(batches) == 29_663
    shares = [0.4137, 0.3833, 0.1104, 0.0710, 0.0090, 0.0061, 0.0039, 0.0026]
    assert list(batches.rates.values()) == pytest.approx(shares, abs=5e-5)
    assert batches._quotas(29_663).tolist() == list(sizes.values())


@pytest.mark.one_backend
def test_ranking():
    """Scores 2.0 for the right candidate and 0.5: log(1 + e^-1.5)."""
    loss = MultipleChoice.default_loss(None)
    assert float(loss(np.array([1]), np.array([[0.5, 2.0]], "float32"))) == pytest.approx(0.201413, abs=1e-6)
    pairs = [("q", "a"), ("q", "b"), ("r", "c"), ("r", "d"), ("s", "e"), ("t", "f"), ("t", "g"), ("t", "h")]
    examples, right = ranking_examples(pairs, [1, 0, 1, 1, 1, 0, 0, 1])
    assert [(question, sorted(found)) for question, found in examples] == [("q", ["a", "b"]), ("t", ["f", "g", "h"])]
    assert [found[place] for (_, found), place in zip(examples, right, strict=True)] == ["a", "h"]
    assert len({tuple(ranking_examples(pairs, [1, 0, 1, 1, 1, 0, 0, 1], seed)[1]) for seed in range(9)}) > 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit({"place": DATA["place"]}), "must have data for every task"),
        (lambda m: m.fit({**DATA, "other": DATA["place"]}), "a dict whose keys are in .*'other'"),
        (lambda m: m.fit({**DATA, "place": (PLACES, ["paris"] * 4)}), "Labels must be in.*'paris'"),
        (lambda m: m.fit(PLACES, [0] * 4), "must be passed together with their texts"),
        (lambda m: m.compile("sgd", loss_weights={"other": 1.0}), "loss_weights.*'other'"),
        (lambda m: MultiTask(m.backbone, {"a": {"task": "Seq2SeqLM"}}), "must be one of TextClassifier.*'Seq2SeqLM'"),
        (lambda m: MultiTask(m.backbone, {"a/b": {}}), "names must not contain / or dots"),
    ],
)
@pytest.mark.one_backend
def test_mistakes_are_clear(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)
