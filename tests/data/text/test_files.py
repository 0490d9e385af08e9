"""Suggestions for folders that do not exist."""

from kerasbert.data.text.files import similar_folder


def test_the_folder_with_the_closest_name_is_suggested(tmp_path):
    (tmp_path / "bert_mini").mkdir()
    (tmp_path / "bert_min").write_text("a file")
    assert similar_folder(tmp_path / "bert_min1") == f". Did you mean {tmp_path / 'bert_mini'}?"
    assert similar_folder(tmp_path / "gpt") == similar_folder(tmp_path / "none" / "bert_mini") == ""
