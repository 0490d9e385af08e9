import pytest

from kerasbert.checkpoints.folder import shipped_folder
from kerasbert.data import Corpus, Tokenizer
from pipelines.corpora.options import Cleaning, TextFiles
from pipelines.prepare_corpus import main, prepare_corpus
from pipelines.reading.tokenizers import load_tokenizer
from pipelines.train_tokenizer import train_tokenizer

pytestmark = pytest.mark.one_backend


def test_cleaning_and_deduplication(tmp_path):
    page = "\n".join(f"This is line number {number} of the page." for number in range(4))
    text = f"Menu\n{page}\n\n{page}\n\nThe code {{ x }} is not text at all.\n"
    (tmp_path / "web.txt").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.train("wordpiece", [text] * 3, 60)
    tokenizer.save(tmp_path / "tokenizer")
    corpora = {
        name: prepare_corpus(
            [str(tmp_path / "web.txt")], tmp_path / "tokenizer", tmp_path / name, cleaning=Cleaning(**options)
        )
        for name, options in {
            "plain": {},
            "clean": {"clean": "c4"},
            "once": {"clean": "c4", "deduplicate": "lines"},
            "documents": {"deduplicate": "documents"},
        }.items()
    }
    counts = {name: (corpus.num_documents, corpus.num_sequences) for name, corpus in corpora.items()}
    assert counts == {"plain": (3, 10), "clean": (2, 8), "once": (1, 4), "documents": (3, 10)}


def test_only_documents_in_a_language(tmp_path):
    english = "The wind blew over the hills, and nobody in the village heard what the old man said that night."
    german = "Der Wind wehte über die Hügel, und niemand im Dorf hörte, was der alte Mann in der Nacht sagte."
    (tmp_path / "both.txt").write_text(f"{english}\n\n{german}\n\n1 2 3\n", encoding="utf-8")
    tokenizer = Tokenizer.train("wordpiece", [english, german] * 3, 80)
    tokenizer.save(tmp_path / "tokenizer")
    corpora = {
        name: prepare_corpus(
            [str(tmp_path / "both.txt")], tmp_path / "tokenizer", tmp_path / str(name), cleaning=Cleaning(language=name)
        )
        for name in ("en", "de", None)
    }
    assert [corpora[name].num_documents for name in ("en", "de", None)] == [1, 1, 3]
    assert "über" in tokenizer.decode(corpora["de"].tokens)


def test_novels_are_documents(tmp_path, capsys):
    """What ends a document, and how long they are, is printed."""
    (tmp_path / "novels").mkdir()
    for number in range(3):
        (tmp_path / "novels" / f"{number}.txt").write_text("It was dark.\n\nThe wind blew.\n\n" * 5)
    source, tokenizer = [str(tmp_path / "novels")], tmp_path / "tokenizer"
    train_tokenizer(source, tokenizer, vocabulary_size=40)
    said = capsys.readouterr().out
    assert (
        "Every text file is one document: there are 3 text files" in said
        and "--documents blank-line" in said
        and "3 documents of 139 characters" in said
    )
    assert prepare_corpus(source, tokenizer, tmp_path / "a").num_documents == 3
    said = capsys.readouterr().out
    assert "one document: there are 3 text files, and most blank lines separate paragraphs" in said
    assert "3 documents of 90 tokens on average" in said
    assert prepare_corpus(source, tokenizer, tmp_path / "b", text=TextFiles(documents="blank-line")).num_documents == 30
    assert "Blank lines end documents: as asked for" in capsys.readouterr().out


def test_few_documents_hold_out_two_or_the_last_and_one_is_refused(tmp_path):
    lines = [f"line {number} of the page" for number in range(3)]
    Tokenizer.train("wordpiece", lines * 5, 40).save(tmp_path / "tokenizer")
    (tmp_path / "few.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (tmp_path / "more.txt").write_text("\n\n".join(lines * 3), encoding="utf-8")
    (tmp_path / "one.txt").write_text("\n".join(lines), encoding="utf-8")

    def prepare(name, **options):
        folders = dict(output=tmp_path / name / "train", held_out=tmp_path / name / "held_out")
        return prepare_corpus([str(tmp_path / f"{name}.txt")], tmp_path / "tokenizer", **folders, **options)

    assert prepare("few").num_documents == 2
    unseen = Corpus.open(tmp_path / "few" / "held_out")
    assert unseen.num_documents == 1 and unseen.tokenizer().decode(unseen.tokens) == lines[2]
    assert prepare("more").num_documents == 7
    unseen = Corpus.open(tmp_path / "more" / "held_out")
    assert unseen.num_documents == 2 and unseen.num_sequences == 2
    with pytest.raises(ValueError, match="two or more.* Received: 1 of them"):
        prepare("one")
    with pytest.raises(ValueError, match="at least 2. Received: 1"):
        prepare("one", held_out_every=1)
    assert not (tmp_path / "one" / "train").exists() and not (tmp_path / "one" / "held_out").exists()


def test_the_tokenizer_of_a_model_on_the_hub(tmp_path, monkeypatch):
    """The command passes the name as it was given, and not as a path, which has one slash less."""
    asked = []
    folder = shipped_folder("bert_mini_en")
    monkeypatch.setattr("kerasbert.checkpoints.folder.download", lambda name, *_: asked.append(name) or folder)
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n\nA dog ran home.\n")
    arguments = [
        "--source",
        str(tmp_path / "text.txt"),
        "--tokenizer",
        "hf://org/model",
        "--output",
        str(tmp_path / "a"),
    ]
    main(arguments)
    assert asked == ["org/model"]
    assert Corpus.open(tmp_path / "a").tokenizer().hash == load_tokenizer("bert_mini_en").hash
