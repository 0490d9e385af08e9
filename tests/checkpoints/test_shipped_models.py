"""Models that come with the package are loaded by name, in a clone and as installed."""

import re
import tomllib

import pytest
from huggingface_hub import ModelCard

import kerasbert
from kerasbert.checkpoints import folder as found_in
from kerasbert.checkpoints.model_card import describe
from kerasbert.data import Tokenizer
from kerasbert.models import Backbone, Bert, BertConfig
from kerasbert.tasks import TextClassifier
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

NAME = "bert_mini_en"


def model(vocabulary_size):
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=2, feed_forward_dim=2, max_length=4)
    return Bert(BertConfig(vocabulary_size=vocabulary_size, **sizes))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The folders of an installed package and of a clone, without models; the process is in another folder."""
    folders = (tmp_path / "kerasbert" / "saved_models", tmp_path / "saved_models")
    monkeypatch.setattr(found_in, "SHIPPED_FOLDERS", folders)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folders


def test_a_name_is_looked_up_in_both_places(folders):
    model(11).save_to_preset(folders[1] / NAME)
    assert kerasbert.load(NAME).config.vocabulary_size == 11
    model(12).save_to_preset(folders[0] / NAME)
    assert kerasbert.load(NAME).config.vocabulary_size == 12
    assert Backbone.from_preset(NAME).config.vocabulary_size == 12
    with pytest.warns(UserWarning, match="new head"):
        classifier = TextClassifier.from_preset(NAME, labels=2)
    assert classifier.backbone.config.vocabulary_size == 12


@pytest.mark.parametrize("name", ["modernbert_mini_en_embedder", "modernbert_mini_en", "gpt2_mini_en"])
def test_a_clone_has_other_models(folders, name):
    model(11).save_to_preset(folders[1] / name)
    assert kerasbert.load(name).config.vocabulary_size == 11


def test_a_local_folder_of_the_name_wins(folders):
    model(11).save_to_preset(folders[1] / NAME)
    model(13).save_to_preset(NAME)
    assert kerasbert.load(NAME).config.vocabulary_size == 13


@pytest.mark.parametrize("path", [f"saved_models/{NAME}", f"./{NAME}", "quickstart"])
def test_only_bare_names_of_shipped_models_are_looked_up(folders, path):
    for name in (NAME, "quickstart"):
        model(11).save_to_preset(folders[1] / name)
    with pytest.raises(FileNotFoundError):
        kerasbert.load(path)


def test_an_unknown_name_lists_what_there_is(folders):
    expected = rf"no model 'bert_mini_eng'. Did you mean {NAME}\? .* comes with kerasbert \(%s\)"
    with pytest.raises(FileNotFoundError, match=expected % f"{', '.join(found_in.SHIPPED)}, missing here"):
        kerasbert.load("bert_mini_eng")
    model(11).save_to_preset(folders[1] / NAME)
    with pytest.raises(FileNotFoundError, match=expected % NAME):
        kerasbert.load("bert_mini_eng")


def test_the_wheel_carries_the_models_that_are_found_by_name():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["package-data"]["kerasbert.saved_models"] == [f"{name}/**/*" for name in found_in.SHIPPED]


@pytest.mark.parametrize("read", [Tokenizer.load, Tokenizer.from_preset])
def test_their_tokenizers_are_found_by_name(read, tmp_path, monkeypatch):
    """As folders are; a folder of that name wins."""
    monkeypatch.chdir(tmp_path)
    tokenizer = read(NAME)
    assert tokenizer.vocabulary_size == 8_192 and tokenizer.hash == read(REPOSITORY / "saved_models" / NAME).hash
    Tokenizer.train("wordpiece", ["the cat sat"] * 9, 20).save(tmp_path / NAME)
    assert read(NAME).vocabulary_size < 30
    with pytest.raises(FileNotFoundError, match="no folder or file bert_mini_eng, .* Did you mean bert_mini_en?"):
        read("bert_mini_eng")
    with pytest.raises(ValueError, match="Use kerasbert.load\\('hf://org/name'\\).tokenizer"):
        read("hf://org/name")


@pytest.mark.parametrize("name", found_in.SHIPPED + found_in.ONLY_IN_CLONES)
def test_their_cards_say_what_the_hub_shows(name):
    """Use and limits come first, and the scores of the metadata are those of the text."""
    card = ModelCard.load(REPOSITORY / "saved_models" / name / "README.md", ignore_metadata_errors=False)
    data = card.data
    assert (data.library_name, data.license, data.language) == ("kerasbert", "apache-2.0", "en")
    assert data.datasets and data.pipeline_tag == describe(kerasbert.load(name)).task
    assert data.model_name == name and len(data.eval_results) >= 6
    words = re.findall(r"\d+\.\d+", card.text)
    assert not [result for result in data.eval_results if str(result.metric_value) not in words]
    sections = re.findall(r"^## (.*)$", card.text, flags=re.MULTILINE)
    assert sections == ["Intended use", "Limits", "Usage", "Data", "Evaluation", "Training", "License", "Citation"]
    assert "](../" not in card.text  # a card on the Hub is alone
    text = re.sub(r"^(\|.*|.*https?://.*)$", "", card.text, flags=re.MULTILINE)
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("name", found_in.SHIPPED + found_in.ONLY_IN_CLONES)
def test_the_snippets_of_their_cards_print_what_the_cards_say(name, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    text = ModelCard.load(REPOSITORY / "saved_models" / name / "README.md").text
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, f"{name}/README.md", "exec"), {})
        printed = set(re.findall(r"[\w.]+", capsys.readouterr().out))
        assert len(printed) >= 4 and printed <= set(re.findall(r"[\w.]+", text)), printed


@pytest.mark.parametrize("name", ["bert_mini_en", "modernbert_mini_en", "gpt2_mini_en"])
def test_figures_of_cards_and_of_the_page_of_results_are_those_of_the_suite(name):
    """Fine-tuning in the order of the card, and the paradigms that the table of the suite has."""
    suite = (REPOSITORY / "benchmarks/studies/suite" / name / "suite.md").read_text(encoding="utf-8")
    page = (REPOSITORY / "docs/results/shipped_models.md").read_text(encoding="utf-8")
    card = ModelCard.load(REPOSITORY / "saved_models" / name / "README.md").text
    tasks = {"wnut17": "f1", "squad": "f1", "qnli": "accuracy", "stsb": "spearman", "summaries": "accuracy"}
    tasks["reviews"] = "accuracy"
    rows = [re.split(r" *\| *", row.strip("| ")) for row in suite.splitlines() if row.startswith("| ")]
    own = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
    for task, metric in tasks.items():
        measured = {row[3]: row for row in rows if row[:2] == [task, metric]}
        score, scratch, reference = measured["scratch"][2], measured["scratch"][4], measured["reference"][4]
        assert re.search(rf"\| {score} \|.*\| {re.escape(reference)} \|", card), task
        assert re.search(rf"\| {score} \| {re.escape(scratch)} \|.*\| {re.escape(reference)} \|", own), task
    for paradigm, score, _, ngrams in (row for row in rows if len(row) == 4 and row[0] != "paradigm"):
        if "±" not in score and "-" not in score:
            assert re.search(rf"\n\| {paradigm} \|.*\| {score} \| {ngrams} \|\n", page), paradigm
