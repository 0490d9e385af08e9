"""Pictures of corrupted text: they show the batches of the recipes."""

import dataclasses
import re

import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from pipelines.recipes.recipe import all_recipes, find_recipe
from pipelines.show.corruption import OBJECTIVES, Example, corrupted, every_objective
from pipelines.show.papers import PAPERS
from pipelines.show.sentences import batches_for, documents_for
from pipelines.show.words import model_type_of, word_tokenizer

pytestmark = pytest.mark.one_backend

SENTENCE = "Thank you for inviting me to your party last week."
WORDS = "Thank you for inviting me to your party last week ."
EXAMPLE = Example(SENTENCE, translation="Merci de votre invitation.")


def picture(recipe, *settings, **changes):
    return corrupted(find_recipe(recipe).with_settings(list(settings)), dataclasses.replace(EXAMPLE, **changes))[0]


@pytest.mark.parametrize("example", PAPERS, ids=[f"{paper.title} {paper.recipe}" for paper in PAPERS])
def test_examples_of_the_papers(example):
    rows = example.picture()
    for label, tokens in example.lines.items():
        assert rows.line(label).text == tokens
    assert example.source in rows.about and f"seed {example.example.seed}" in rows.notes[-1]


def test_the_papers_say_what_is_predicted():
    by_title = {example.title: example.picture() for example in PAPERS}
    spans = by_title["SpanBERT: a span, and its words from the words beside it"]
    boundary = spans.line("boundary").under
    assert boundary == {"left": ("was",) * 4, "right": ("to",) * 4, "place": ("p1", "p2", "p3", "p4")}
    pair = by_title["BERT: next-sentence prediction"]
    assert [value for value in pair.line("inputs").under["predicts"] if value] == ["the", "of"]
    assert pair.line("inputs").under["segment"] == ("0",) * 8 + ("1",) * 7
    assert pair.notes[0] == "Label 0: the second segment follows the first."
    electra = by_title["ELECTRA: replaced token detection"].line("discriminator")
    assert electra.under["predicts"] == ("original",) * 3 + ("replaced",) + ("original",) * 3
    assert electra.kinds[1] == "kept" and electra.kinds[3] == "sampled"
    tlm = by_title["XLM: translation language model"].line("inputs").under
    assert tlm["position"] == tuple("012345012345") and tlm["language"] == ("en",) * 6 + ("fr",) * 6


def test_every_recipe_can_be_drawn():
    for name, make in all_recipes().items():
        (rows,) = corrupted(make(), EXAMPLE)
        assert rows.title == name and rows.lines and rows.about, name


def test_every_objective_is_on_one_page():
    pictures = every_objective(EXAMPLE)
    assert len(pictures) == len(OBJECTIVES) == 26
    assert not any(note.startswith("Not drawn") for rows in pictures for note in rows.notes)
    assert "##" in pictures[list(OBJECTIVES).index("bert.large_whole_words")].line("inputs").text


def test_what_cannot_be_drawn_says_why():
    pictures = every_objective(dataclasses.replace(EXAMPLE, translation=""))
    missing = {rows.title.rpartition(": ")[2]: rows.notes[0] for rows in pictures if not rows.lines}
    assert set(missing) == {"xlm.mlm_tlm", "transformer.base"}
    assert all(re.match(r"Not drawn: .*Give it with --translation\.", note) for note in missing.values())


@pytest.mark.parametrize("recipe", ["bert.base", "roberta.base", "modernbert.base", "t5.base", "gpt.base"])
def test_the_picture_is_the_first_batch_of_a_run(recipe):
    chosen = find_recipe(recipe).with_settings(["data.rows=chunks"] if recipe == "bert.base" else [])
    documents = documents_for(chosen, SENTENCE)
    tokenizer = word_tokenizer(documents, model_type_of(chosen))
    x, _, _ = batches_for(chosen, documents, tokenizer, seed=5)[0]
    real = int(x["lengths"][0]) if "lengths" in x else np.count_nonzero(x["token_ids"][0] != (tokenizer.pad_id or 0))
    tokens = [tokenizer.token(number) for number in x["token_ids"][0, :real]]
    line = corrupted(chosen, dataclasses.replace(EXAMPLE, seed=5))[0].lines
    shown = next(one for one in line if one.label in ("inputs", "reads")).text.replace("<X>", "<extra_id_0>")
    assert shown.split() == tokens[: len(shown.split())] and len(shown.split()) >= 10


def test_marks_of_masked_tokens():
    kinds = set()
    for rows in corrupted(find_recipe("modernbert.base"), dataclasses.replace(EXAMPLE, draws=30)):
        line = rows.line("inputs")
        original = ("[CLS] " + WORDS + " [SEP]").split()
        for token, kind, target, there in zip(line.tokens, line.kinds, line.under["predicts"], original, strict=True):
            assert (kind in ("mask", "kept", "random")) == bool(target)
            assert target in ("", there)
            assert (token == "[MASK]") == (kind == "mask") and (token == there or kind in ("mask", "random"))
            kinds.add(kind)
    assert {"mask", "kept", "random"} <= kinds


def test_noise_of_t5_adds_up_to_the_text():
    for recipe in ("t5.base", "t5.replace_spans", "t5.drop_tokens", "t5.prefix_lm"):
        for rows in corrupted(find_recipe(recipe), dataclasses.replace(EXAMPLE, draws=8)):
            text, targets = rows.line("text"), rows.line("targets")
            assert text.text == WORDS
            noise = [token for token, kind in zip(text.tokens, text.kinds, strict=True) if kind == "noise"]
            assert noise == [token for token, kind in zip(targets.tokens, targets.kinds, strict=True) if kind == "text"]


def test_deshuffling_moves_tokens_only():
    rows = picture("t5.deshuffling")
    assert sorted(rows.line("inputs").tokens) == sorted(rows.line("targets").tokens)
    assert "moved" in rows.line("inputs").kinds


def test_a_permutation_shows_what_each_target_sees():
    rows = picture("xlnet.base", "data.noise.partial=3", seed=1)
    order = rows.line("order")
    assert order.text == WORDS
    ranks = {int(rank): column for column, rank in enumerate(order.under["predicted"]) if rank}
    assert sorted(ranks) == list(range(1, len(rows.lines)))
    for number, line in enumerate(rows.lines[1:], 1):
        assert line.tokens[ranks[number]] == "?" and line.label == f"{number}. {order.tokens[ranks[number]]}"
        hidden = {column for column, kind in enumerate(line.kinds) if kind == "hidden"}
        assert hidden == {ranks[later] for later in range(number + 1, len(rows.lines))}


def test_language_models_predict_the_next_token():
    reads = picture("gpt.base").line("reads")
    assert reads.tokens[1:] == reads.under["predicts"][:-1]
    both = picture("elmo.base").line("reads")
    assert both.under["next"][0] == both.tokens[1] and both.under["previous"][1] == both.tokens[0]
    prefix = picture("t5.prefix_language_model").line("reads")
    first = prefix.kinds.index("text")
    assert set(prefix.kinds[:first]) == {"prefix"} and not any(prefix.under["predicts"][: first - 1])
    assert all(prefix.under["predicts"][first - 1 :])


def test_objectives_of_a_discriminator():
    slots = [
        column for column, value in enumerate(picture("electra.base").line("generator").under["predicts"]) if value
    ]

    def predicted(recipe):
        values = picture(recipe).line("discriminator").under["predicts"]
        return [column for column, value in enumerate(values) if value], values

    assert len(predicted("electra.base")[0]) == 13
    assert predicted("electra.replaced_slots")[0] == slots
    assert predicted("electra.replace_mlm")[0] == slots
    assert " ".join(predicted("electra.all_tokens_mlm")[1]) == f"[CLS] {WORDS} [SEP]"


def test_a_generator_fills_the_slots():
    tokenizer = word_tokenizer([SENTENCE], "electra", further=())
    size = dict(num_layers=1, hidden_dim=8, num_heads=2, feed_forward_dim=8, max_length=512, dropout=0.0)
    model = MaskedLM(Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **size)), tokenizer=tokenizer)
    bias = np.full(tokenizer.vocabulary_size, -1e4, "float32")
    bias[tokenizer.id("party")] = 1e4
    next(weight for weight in model.weights if weight.path.endswith("/masked_lm/bias")).assign(bias)
    rows = picture("electra.base", tokenizer=tokenizer, generator=model)
    line = rows.line("discriminator")
    assert {token for token, kind in zip(line.tokens, line.kinds, strict=True) if kind == "sampled"} == {"party"}
    assert not any("no generator" in note for note in rows.notes)
    assert any("no generator" in note for note in picture("electra.base").notes)


def test_seeds_draws_and_settings_change_the_noise():
    assert picture("roberta.base", seed=0) == picture("roberta.base", seed=0) != picture("roberta.base", seed=1)
    draws = corrupted(find_recipe("roberta.base"), dataclasses.replace(EXAMPLE, draws=3))
    assert [rows.title for rows in draws] == [f"roberta.base, draw {n}" for n in (1, 2, 3)]
    assert len({rows.line("inputs").text for rows in draws}) > 1
    masked = picture("spanbert.base", "data.noise.rate=0.5").line("inputs").under["predicts"]
    assert sum(map(bool, masked)) == 6


def test_facts_follow_the_settings():
    assert picture("t5.base", "data.noise.rate=0.3").about.startswith(
        "30% of the tokens are noise, in spans of 3 on average"
    )
    assert "11 tokens have 2 noise tokens in 1 span, and the last span ends the text." in picture("t5.base").notes
    assert "Rows of this recipe have 568 tokens, 85 of them noise in 28 spans." in picture("t5.base").notes
    assert "85% of these are masked and 15% kept" in picture("electra.base").about
    assert picture("deberta.v3_base").about.endswith("100% of these are masked, and a generator fills them all.")


def test_a_long_sentence_is_cut_to_the_row():
    long = " ".join(f"w{number}" for number in range(300))
    assert len(picture("bert.tiny", sentence=long).line("inputs").tokens) == 64


def test_errors():
    with pytest.raises(ValueError, match="must be a sentence and at least one draw. Received: ' ', 1 draws"):
        picture("bert.base", sentence=" ")
    with pytest.raises(ValueError, match="reads pairs of a sentence and its translation"):
        picture("transformer.base", translation="")
