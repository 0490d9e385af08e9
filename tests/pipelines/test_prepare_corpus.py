from kerasbert.data import Tokenizer
from pipelines.prepare_corpus import prepare_corpus


def test_cleaning_and_deduplication(tmp_path):
    page = "\n".join(f"This is line number {number} of the page." for number in range(4))
    text = f"Menu\n{page}\n\n{page}\n\nThe code {{ x }} is not text at all.\n"
    (tmp_path / "web.txt").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.train("wordpiece", [text] * 3, 60)
    tokenizer.save(tmp_path / "tokenizer")
    corpora = {
        name: prepare_corpus([str(tmp_path / "web.txt")], tmp_path / "tokenizer", tmp_path / name, **options)
        for name, options in {
            "plain": {},
            "clean": {"clean": "c4"},
            "once": {"clean": "c4", "deduplicate": "lines"},
            "documents": {"deduplicate": "documents"},
        }.items()
    }
    counts = {name: (corpus.num_documents, corpus.num_sequences) for name, corpus in corpora.items()}
    assert counts == {"plain": (3, 10), "clean": (2, 8), "once": (1, 4), "documents": (3, 10)}
