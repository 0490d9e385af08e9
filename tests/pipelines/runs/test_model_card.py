"""Model cards: metadata that the hub reads, usage that runs, scores, and no private paths."""

import re

import pytest
from huggingface_hub import ModelCard

from kerasbert.checkpoints.model_card import OWN_MODEL_TYPES, describe
from kerasbert.data import Tokenizer
from kerasbert.metrics import by_class
from kerasbert.models import (
    FAMILIES,
    T5,
    Bert,
    BertConfig,
    DebertaV2,
    DebertaV2Config,
    Electra,
    ElectraConfig,
    GPTBert,
    GPTBertConfig,
    T5Config,
    WordVectors,
    WordVectorsConfig,
)
from kerasbert.objectives import TSDAE, MaskedLM, ReplacedTokenDetection, Seq2SeqLM, SkipGram
from kerasbert.tasks import (
    MultipleChoice,
    MultiVectorEmbedder,
    QuestionAnswerer,
    Reranker,
    SparseEmbedder,
    StaticEmbedder,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)
from kerasbert.training import add_lora
from pipelines.evaluate import evaluate
from pipelines.runs.model_card import Measured, write_card
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

SIZES = dict(num_layers=1, hidden_dim=8, num_heads=2, feed_forward_dim=12, max_length=16)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", ["A first text. The cat sat on the mat. Its pair."] * 3, 59)


@pytest.fixture
def bert(tokenizer):
    return Bert(BertConfig(vocabulary_size=59, **SIZES))


def written(folder, trained, measured=(), pairs=False, start="", **recipe):
    write_card(
        folder,
        "A model",
        {"source": "/home/me/secret/train.csv"},
        recipe,
        {},
        describe(trained, pairs),
        measured,
        log={"train_loss": 0.25},
        start=start,
    )
    return (folder / "README.md").read_text()


def test_a_classifier(bert, tokenizer, tmp_path):
    labels = ["bad", "good", "a|b"]
    model = TextClassifier(bert, labels=labels, tokenizer=tokenizer)
    expected, answers = ["bad", "bad", "good", "a|b"], ["bad", "good", "good", "good"]
    measured = [Measured("/home/me/secret/test.csv", {"accuracy": 0.5, "matthews": None}, 4, expected, answers)]
    text = written(tmp_path, model, measured, model="/home/me/secret/bert_mini", epochs=3)
    assert "secret" not in text and "/home" not in text
    assert "| model | bert_mini |" in text and "| source | train.csv |" in text
    assert "`bad`, `good`, `a|b`" in text
    begin = (
        f"# {tmp_path.name}\n\nA model: a Bert model with 1,263 parameters that assigns one of the labels `bad`, `good`"
    )
    assert begin in text
    limits = (
        "at most 16 tokens, special tokens included; longer texts are cut. It gives one of its labels to every text"
    )
    assert text.index(limits) < text.index("## Usage") < text.index("## Evaluation") < text.index("## Training")
    assert "| at the end | value |\n|---|---|\n| train_loss | 0.25 |" in text[text.index("## Training") :]
    assert "### test.csv, 4 examples" in text
    assert "| accuracy | 0.5 |\n| accuracy of the most frequent label | 0.5 |" in text
    assert "| bad | 1 | 0.5 | 0.6667 | 2 |" in text and "| a\\|b | 0 | 0 | 0 | 1 |" in text
    matrix = text[text.index("Rows are the right classes") :].split("\n")[2:7]
    rows = ["| bad | 1 | 1 | 0 |", "| good | 0 | 1 | 0 |", "| a\\|b | 0 | 1 | 0 |"]
    assert matrix == ["| right class | bad | good | a\\|b |", "|---|---|---|---|", *rows]
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.library_name, data.pipeline_tag, data.base_model) == ("kerasbert", "text-classification", None)
    assert data.tags == ["transformers", "keras", "bert"]
    (result,) = data.eval_results
    assert (result.dataset_name, result.metric_type, result.metric_value) == ("test.csv", "accuracy", 0.5)


def test_scores_and_data_sets_have_the_names_of_the_hub(bert, tmp_path):
    measured = [Measured("hf://glue:stsb#validation", {"spearman": 0.5}), Measured("hf://ag_news", {"macro_f1": 0.25})]
    written(tmp_path, TextClassifier(bert, problem="score"), measured)
    first, second = ModelCard.load(tmp_path / "README.md").data.eval_results
    assert (first.dataset_type, first.dataset_config, first.dataset_split) == ("glue", "stsb", "validation")
    assert (first.dataset_name, first.metric_type, first.metric_name) == ("glue (stsb)", "spearmanr", "spearman")
    assert (second.dataset_type, second.dataset_config, second.metric_type) == ("ag_news", None, "f1")


def test_a_model_of_the_hub_is_named_as_the_base(bert, tmp_path):
    start = "hf://google/bert_tiny"
    text = written(tmp_path, TextClassifier(bert, labels=["a", "b"]), start=start, model=start)
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.base_model == "google/bert_tiny" and data.eval_results is None
    assert "| model | hf://google/bert_tiny |" in text


@pytest.mark.parametrize("start", ["bert_mini_en", str(REPOSITORY / "saved_models" / "bert_mini_en")])
def test_a_model_that_others_know_is_named_as_the_base(bert, tmp_path, start):
    """Also by a model that began with one that began with it. The name of any other folder could be another model's."""
    first, second, third = (tmp_path / name for name in ("gpt2", "second", "third"))
    model = TextClassifier(bert, labels=["a", "b"])
    for folder, begun in ((first, start), (second, first), (third, tmp_path / "unknown")):
        model.save_to_preset(folder)
        written(folder, model, start=str(begun))
    bases = [ModelCard.load(folder / "README.md").data.base_model for folder in (first, second, third)]
    assert bases == ["bert_mini_en", "bert_mini_en", None]


def test_limits_of_the_start_are_pointed_to(bert, tmp_path):
    def limits(start):
        text = written(tmp_path / "end", TextClassifier(bert, labels=["a", "b"]), start=start)
        return re.search(r"## Limits\n\n(.*)\n", text)[1]

    for name in ("start", "end"):
        bert.save_to_preset(tmp_path / name)
    own = limits("bert.tiny")
    assert own.endswith("even if none of them fits. It has not been evaluated on held-out data.")
    said = "It inherits the limits of `bert_mini_en`, which are in the README.md of that model."
    assert limits("bert_mini_en") == own.replace(" It has not", f" {said} It has not")
    for card, inherits in (("# Start\n\n## Limits\n\nIt is small.\n", True), ("# Start\n\nIts limits.\n", False)):
        (tmp_path / "start" / "README.md").write_text(card)
        assert ("It inherits the limits of `start`" in limits(str(tmp_path / "start"))) == inherits


@pytest.mark.parametrize(
    "card, expected",
    [
        ("---\nlicense: cc-by-sa-4.0\nlanguage:\n- de\n- en\ntags: [a]\n---\n# A", ("cc-by-sa-4.0", ["de", "en"])),
        ("---\nlicense: other\nlicense_name: mine\n---\n", ("other", None)),
        ("# No metadata", (None, None)),
        ("---\nlicense: [\n---\n", (None, None)),
        (None, (None, None)),
    ],
)
def test_license_and_language_are_those_of_the_start(bert, tmp_path, card, expected):
    start = tmp_path / "start"
    bert.save_to_preset(start)
    if card:
        (start / "README.md").write_text(card)
    written(tmp_path, TextClassifier(bert, labels=["a", "b"]), start=str(start))
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.get("license"), data.get("language")) == expected
    assert data.get("license_name") == ("mine" if expected[0] == "other" else None)
    text = (tmp_path / "README.md").read_text()
    assert (f"`{expected[0]}`, as `start`. Check that the terms" in text) == (expected[0] is not None)


def test_scores_of_examples_that_were_trained_on_are_no_results(bert, tmp_path):
    """They are in the text, with a sentence that says so, and not in the metadata."""
    model = TextClassifier(bert, labels=["a", "b"])
    measured = [
        Measured("x.csv", {"accuracy": 1.0}, 4, repeated=3),
        Measured("y.csv", {"accuracy": 0.5}, 4),
        Measured("z.csv", {"accuracy": 0.25}, 4, repeated=1),
    ]
    text = written(tmp_path, model, measured)
    said = "also in the training data, so these scores do not show how well the model does on new ones."
    assert f"### x.csv, 4 examples\n\n3 of these examples are {said}\n\n| metric" in text
    assert f"### z.csv, 4 examples\n\n1 of these examples is {said}\n" in text and text.count(said) == 2
    assert [
        (one.dataset_name, one.metric_value) for one in ModelCard.load(tmp_path / "README.md").data.eval_results
    ] == [("y.csv", 0.5)]


@pytest.mark.parametrize("start", ["bert.tiny", "no/such/folder", "hf://not/a/name", "hf://"])
def test_a_start_that_is_no_folder_has_no_license(bert, tmp_path, start):
    """`init_from` of a recipe may be the name of another recipe, and folders may be gone after a long training."""
    text = written(tmp_path, bert, start=start)
    assert "## License" not in text and ModelCard.load(tmp_path / "README.md").data.get("license") is None


def test_the_label_of_an_f1_and_answers_that_are_all_alike(bert, tmp_path):
    expected, answers = ["bad", "good"] * 10, ["bad"] * 19 + ["good"]
    measured = [Measured("x", {"accuracy": 0.55, "f1": 0.1}, 20, expected, answers)]
    text = written(tmp_path, TextClassifier(bert, labels=["bad", "good"]), measured)
    assert "| f1 of `good` | 0.1 |" in text and "\n\n95% of the answers are `bad`.\n" in text
    results = ModelCard.load(tmp_path / "README.md").data.eval_results
    assert [(result.metric_type, result.metric_name) for result in results] == [
        ("accuracy", "accuracy"), ("f1", "f1 of `good`"),
    ]  # fmt: skip
    text = written(tmp_path, TextClassifier(bert, labels=["bad", "good"]), [Measured("x", {}, 20, expected, expected)])
    assert "of the answers are" not in text


def test_the_label_of_an_f1_over_several_seeds_and_data_sets(bert, tmp_path):
    scores = {"de_f1": 0.1, "de_macro_f1": 0.2, "f1": 0.3, "f1_deviation": 0.4, "macro_f1_deviation": 0.5}
    write_card(tmp_path, "A model", {}, {}, scores, describe(TextClassifier(bert, labels=["bad", "good"])))
    text = (tmp_path / "README.md").read_text()
    for row in ("de_f1 of `good` | 0.1", "de_macro_f1 | 0.2", "f1 of `good` | 0.3", "f1_deviation of `good` | 0.4"):
        assert f"| {row} |" in text
    assert "| macro_f1_deviation | 0.5 |" in text


def test_many_classes_show_their_confusions(bert, tmp_path):
    labels = [f"class {number}" for number in range(25)]
    expected = [*labels, "class 3", "class 3"]
    answers = [*labels[:-1], "class 0", "class 4", "class 4"]
    text = written(tmp_path, TextClassifier(bert, labels=labels), [Measured("x", {}, 27, expected, answers)])
    assert "| class 3 | class 4 | 2 |\n| class 24 | class 0 | 1 |" in text and "Rows are" not in text


def test_labels_and_tags(bert, tmp_path):
    model = TextClassifier(bert, labels=["a", "b"], problem="labels")
    text = written(tmp_path, model, [Measured("x", {}, 2, [["a", "b"], []], [["a"], ["b"]])])
    assert "| a | 1 | 1 | 1 | 1 |" in text and "| b | 0 | 0 | 0 | 1 |" in text
    model = TokenClassifier(bert, labels=["O", "B-PER", "I-PER"])
    tags = [["O", "B-PER", "I-PER"], ["B-PER", "O"]]
    text = written(tmp_path, model, [Measured("x", {}, 2, tags, [tags[0], ["O", "O"]])])
    assert "| entity | precision" in text and "| PER | 1 | 0.5 | 0.6667 | 2 |" in text


def test_a_reranker_of_classes(bert, tokenizer, tmp_path, monkeypatch):
    """It cannot rank: the card names its labels, and shows the scores of a pair."""
    monkeypatch.chdir(tmp_path)
    model = Reranker(bert, labels=["contradiction", "entailment", "neutral"], tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    text = written(tmp_path / "model", model)
    assert "that assigns one of the labels `contradiction`, `entailment`, `neutral` to a pair of texts." in text
    assert "## Labels\n\n`contradiction`, `entailment`, `neutral`\n" in text and "rank" not in text
    assert ModelCard.load(tmp_path / "model" / "README.md").data.pipeline_tag == "text-classification"
    code = re.search(r"```python\n(.*?)```", text, flags=re.S)[1]
    names = {}
    exec(re.sub(r"print\((.*)\)\n", r"answer = \1\n", code), names)
    assert names["answer"].shape == (1, 3)
    assert Reranker(bert).hub_task == "text-ranking" and ".rank(" in Reranker(bert).example_call


def test_any_number_of_labels(bert, tmp_path):
    for count, labels in ((2, "the labels `0`, `1`"), (9, "9 labels")):
        for problem, several in (("labels", "any number of"), ("classes", "one of")):
            model = TextClassifier(bert, labels=[str(number) for number in range(count)], problem=problem)
            assert f"that assigns {several} {labels} to a text or a pair of texts." in written(tmp_path, model)


def test_the_article_is_that_of_the_spoken_name(bert):
    spoken = {"An": ("Albert", "Electra", "Elmo", "MPNet", "XLM", "XLNet"), "A": ("Bert", "EuroBert", "GPT2", "T5")}
    for article, families in spoken.items():
        for family in families:
            bert.__class__ = type(family, (Bert,), {})
            assert describe(bert).purpose.startswith(f"{article} {family} model with ")


def test_the_length_is_that_of_the_task(bert, tmp_path):
    assert "It reads at most 16 tokens, special" in written(tmp_path, TextClassifier(bert, labels=2))
    text = written(tmp_path, TextEmbedder(bert, max_length=5))
    assert "It reads at most 5 tokens, special tokens included; longer texts are cut." in text
    for model in (QuestionAnswerer(bert), TokenClassifier(bert, labels=["O", "B-X"])):
        assert "It reads at most 16 tokens, special tokens included; longer texts are read in parts." in written(
            tmp_path, model
        )


def test_a_score_has_no_labels(bert, tmp_path):
    model = TextClassifier(bert, problem="score")
    text = written(tmp_path, model, [Measured("x", {"pearson": 0.5}, 2, ["1", "2"], [1.0, 2.0])])
    assert "## Labels" not in text and "| pearson | 0.5 |" in text and "F1" not in text


def test_the_folder_has_to_be_found(bert, tmp_path):
    (tmp_path / "mood").mkdir()
    text = written(tmp_path / "mood", TextClassifier(bert, labels=["a", "b"]))
    said = "## Usage\n\nReplace `mood` by the path of this folder, unless you run the code beside it.\n\nWith kerasbert"
    assert said in text


def test_the_usage_runs(bert, tokenizer, tmp_path, monkeypatch):
    """The code of the card, beside the folder."""
    monkeypatch.chdir(tmp_path)
    electra = [Electra(ElectraConfig(vocabulary_size=59, embedding_dim=8, **SIZES)) for _ in range(2)]
    for number, (model, pairs) in enumerate(
        (
            (TextClassifier(bert, labels=["a", "b"], tokenizer=tokenizer), False),
            (TextClassifier(bert, labels=["a", "b"], tokenizer=tokenizer), True),
            (TokenClassifier(bert, labels=["O", "B-X"], tokenizer=tokenizer), False),
            (QuestionAnswerer(bert, tokenizer=tokenizer), False),
            (MultipleChoice(bert, tokenizer=tokenizer), False),
            (Reranker(bert, tokenizer=tokenizer), False),
            (MaskedLM(Bert(BertConfig(vocabulary_size=59, **SIZES)), tokenizer=tokenizer), False),
            (ReplacedTokenDetection(*electra, tokenizer=tokenizer), False),
        )
    ):
        folder = tmp_path / f"model_{number}"
        model.save_to_preset(folder)
        codes = re.findall(r"```python\n(.*?)```", written(folder, model, pairs=pairs), flags=re.S)
        code, *others = [code for code in codes if "transformers" not in code]
        names = {}
        exec(re.sub(r"print\((.*)\)\n", r"answer = \1\n", code), names)
        assert names["answer"], code
        assert len(others) == isinstance(model, ReplacedTokenDetection)
        assert len(codes) == 2, "one for kerasbert, and one for transformers or for the generator"
        for other in others:
            assert f"{folder.name}/generator" in other
            with pytest.warns(UserWarning, match="has no weights for classifier"):
                exec(other, names)


@pytest.mark.parametrize("kind", ["label", "score", "labels", "tags", "questions", "sequences", "rerank"])
def test_the_code_for_an_adapter_runs(bert, tokenizer, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    t5 = T5(T5Config(59, num_layers=1, hidden_dim=8, num_heads=2, head_dim=4, feed_forward_dim=12))
    model = {
        "label": lambda: TextClassifier(bert, labels=["it's", "not"], tokenizer=tokenizer),
        "score": lambda: TextClassifier(bert, problem="score", tokenizer=tokenizer),
        "labels": lambda: TextClassifier(bert, labels=["a", "b"], problem="labels", tokenizer=tokenizer),
        "tags": lambda: TokenClassifier(bert, labels=["O", "B-X"], tokenizer=tokenizer),
        "questions": lambda: QuestionAnswerer(bert, tokenizer=tokenizer),
        "sequences": lambda: Seq2SeqLM(t5, tokenizer=tokenizer),
        "rerank": lambda: Reranker(bert, tokenizer=tokenizer),
    }[kind]()
    model.save_to_preset(tmp_path / "base")
    add_lora(model, rank=2)
    model.save_adapter(tmp_path / "adapter", "base")
    write_card(tmp_path / "adapter", "A model", {}, {}, {}, describe(model, base="base"))
    code, *others = re.findall(r"```python\n(.*?)```", (tmp_path / "adapter/README.md").read_text(), flags=re.S)
    names = {}
    exec(code, names)
    assert type(names["model"]) is type(model) and not others
    if kind != "sequences":
        assert getattr(names["model"], "labels", None) == getattr(model, "labels", None)
    assert getattr(names["model"], "problem", None) == getattr(model, "problem", None)


def test_scores_by_class():
    found = by_class(["a", "b"], ["a", "a", "c"], ["a", "b", "b"])
    assert found["a"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert found["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert found["c"]["support"] == 1
    assert by_class(["a", "b"], [["a"], ["a", "b"]], [["a", "b"], ["a"]])["b"]["precision"] == 0.0


def test_objectives_of_other_kinds_have_a_card(bert, tmp_path):
    model = SkipGram(WordVectors(WordVectorsConfig(vocabulary_size=31, hidden_dim=8)))
    assert 'model = kerasbert.load("' + tmp_path.name in written(tmp_path, model)


def test_settings_that_were_left_out_are_not_listed(bert, tmp_path):
    recipe = dict(patience=None, keep_best=False, layer_decay=None, held_out=(), epochs=3, warmup_share=0.0)
    text = written(tmp_path, TextClassifier(bert, labels=["a", "b"]), **recipe)
    training = text[text.index("## Training") :]
    assert "| epochs | 3 |" in training and "| warmup_share | 0 |" in training
    assert not any(name in training for name in ("patience", "keep_best", "layer_decay", "held_out"))
    assert "## Evaluation" not in text and "It has not been evaluated on held-out data." in text


def test_curves_and_data_sets_of_the_hub(bert, tmp_path):
    (tmp_path / "logs" / "seed_0").mkdir(parents=True)
    (tmp_path / "logs" / "seed_0" / "curves.png").write_bytes(b"")
    model = TextClassifier(bert, labels=["a", "b"])
    write_card(tmp_path, "A model", {"source": "hf://glue:sst2#train"}, {"epochs": 1}, {}, describe(model))
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.datasets == ["glue"]
    assert "![Loss and scores during training](logs/seed_0/curves.png)" in card.text


@pytest.mark.parametrize(
    "kind", ["label", "pair", "tags", "mask", "score", "embedder", "static", "sparse", "late", "reranker", "inference"]
)
def test_the_code_for_other_libraries_runs(bert, tokenizer, tmp_path, monkeypatch, capsys, kind):
    """The second code block of a card, beside the folder."""
    monkeypatch.chdir(tmp_path)
    model = {
        "tags": lambda: TokenClassifier(bert, labels=["B-X", "B-Y"], tokenizer=tokenizer),  # it leaves out "O"
        "mask": lambda: MaskedLM(bert, tokenizer=tokenizer),
        "score": lambda: TextClassifier(bert, problem="score", tokenizer=tokenizer),
        "embedder": lambda: TextEmbedder(bert, tokenizer=tokenizer),
        "static": lambda: StaticEmbedder.distil(TextEmbedder(bert, tokenizer=tokenizer), width=None),
        "sparse": lambda: SparseEmbedder(bert, tokenizer=tokenizer),
        "late": lambda: MultiVectorEmbedder(bert, projection=4, tokenizer=tokenizer),
        "reranker": lambda: Reranker(bert, tokenizer=tokenizer),
        "inference": lambda: Reranker(bert, labels=["no", "yes", "maybe"], tokenizer=tokenizer),
    }.get(kind, lambda: TextClassifier(bert, labels=["a", "b"], tokenizer=tokenizer))()
    model.save_to_preset(tmp_path / "model")
    text = written(tmp_path / "model", model, pairs=kind == "pair")
    code = re.findall(r"```python\n(.*?)```", text, flags=re.S)[-1]
    assert "transformers" in code
    names = {}
    exec(code, names)
    printed = capsys.readouterr().out
    if kind == "score":
        assert tuple(names["outputs"].logits.shape) == (1, 1)
    else:
        expected = {"tags": "'entity'", "mask": "'token_str'", "embedder": "(2, 8)", "static": "(2, 8)"}
        expected |= {"sparse": "torch.Size([2, 59])", "late": ", 4", "reranker": "'corpus_id'", "inference": "[["}
        expected = expected.get(kind, "'label'")
        assert expected in printed
    if kind in ("label", "pair"):
        answer = model.classify([("A first text.", "Its pair.")] if kind == "pair" else ["A first text."])[0]
        assert f"'label': '{answer['label']}', 'score': {answer['score']:.4f}" in printed


def test_transformers_is_named_where_it_has_the_architecture(tokenizer, tmp_path):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    aliases = {"mt5-lm", "t5-lm", "umt5-lm"}  # which are written as those of T5
    assert OWN_MODEL_TYPES == set(FAMILIES) - set(CONFIG_MAPPING_NAMES) - aliases
    model = MaskedLM(GPTBert(GPTBertConfig(vocabulary_size=59, distance_buckets=8, **SIZES)), tokenizer=tokenizer)
    text = written(tmp_path, model)
    assert "from transformers" not in text and "- transformers" not in text
    model = MaskedLM(
        DebertaV2(DebertaV2Config(vocabulary_size=59, mask_decoder=True, distance_buckets=8, **SIZES)),
        tokenizer=tokenizer,
    )
    text = written(tmp_path, model)
    assert "from transformers" not in text and "It has an enhanced mask decoder" in text


def test_objectives_without_a_head_are_shown_as_embedders(tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = TSDAE(Bert(BertConfig(vocabulary_size=59, **SIZES)), tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    text = written(tmp_path / "model", model)
    saved = model.count_params() - model.cross_attention.count_params()
    assert "TextEmbedder.from_preset" in text and f"{saved:,} parameters" in text
    code = re.findall(r"```python\n(.*?)```", text, flags=re.S)[1]
    exec(code, {})
    with pytest.raises(ValueError, match="The losses of TSDAE need layers that only training has.*cross_attention"):
        evaluate(str(tmp_path / "model"), corpus=("corpus",))
