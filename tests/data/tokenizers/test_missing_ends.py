"""RoBERTa's files without one of the tokens at the ends of rows."""

import json

import pytest

from kerasbert.data import Tokenizer

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize("missing", ["sep_token", "cls_token"])
def test_rows_have_no_ends(missing, tmp_path):
    tokenizer = Tokenizer.train("byte_bpe", ["the cat sat on the mat"] * 9, 270)
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": "RobertaTokenizer", missing: None}
    path.write_text(json.dumps(settings))
    (tmp_path / "special_tokens_map.json").unlink(missing_ok=True)
    found = Tokenizer.load(tmp_path)
    assert found.template() == (("A", 0),)
    assert found.decode(found.encode(["the cat"])[0]) == "the cat"
