"""Examples and options from which nothing can be learned: refused by name, before a step."""

import keras
import numpy as np
import pytest

from kerasbert.retrieval import (
    GIST,
    AdaptiveLayer,
    BatchHard,
    Collection,
    CoSENT,
    DistillKL,
    EmbeddingMSE,
    LambdaLoss,
    Matryoshka,
    MultipleNegatives,
    NegativeRules,
    OnlineContrastive,
    PairClasses,
    SampledNegatives,
    Splade,
    mine_hard_negatives,
)
from kerasbert.tasks import MultiVectorEmbedder, Reranker, SparseEmbedder, StaticEmbedder, TextEmbedder

PAIRS = [("Ann lives in Rome", "Rome"), ("Bob lives in Bonn", "Bonn"), ("who met Bob ?", "Ann")]
SAME = [(query, "Rome") for query, _ in PAIRS]
EMPTY = [*PAIRS, ("who ?", " ")]


class Batched(keras.utils.PyDataset):
    """Batches of texts in a list."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, number):
        return self.batches[number]


@pytest.fixture
def embedder(tiny_backbone, tokenizer):
    return lambda objective: TextEmbedder(tiny_backbone(), objective=objective, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("objective", "x", "y", "message"),
    [
        (PairClasses(3), PAIRS, [0, 1, 3], "indices from 0 to 2, .*Received: 3"),
        (PairClasses(["a", "b"]), PAIRS, [0, 1, -1], "indices from 0 to 1, .*Received: -1"),
        (EmbeddingMSE(), PAIRS, np.zeros((3, 8)), "the width of the model's for EmbeddingMSE, 32. Received: 8"),
        (EmbeddingMSE(), PAIRS, np.ones((3, 1)), "32. Received: 1"),
        (Matryoshka(EmbeddingMSE(), dims=[8]), PAIRS, np.zeros((3, 8)), "32. Received: 8"),
        (EmbeddingMSE(), PAIRS, [[1.0, 2.0], [1.0], [2.0]], "must be vectors of one width"),
        (GIST(), PAIRS, [[[1.0], [1.0, 2.0]]] * 3, "must be vectors of one width"),
        ("ranking", EMPTY, None, "must not be empty. Received: text 1 of example 3"),
        ("triplet", [("", "a", "b"), ("c", "d", "e")], None, "Received: text 0 of example 0"),
        ("ranking", [("Ann", ["Rome", "Bonn"]), ("Bob", ["Bonn", "Rome"])], None, "as example 0. Instead of"),
        ("cosine", [("Ann", ("Rome", "Bonn"))] * 2, [0.1, 0.2], "must be a text, or a tuple of texts"),
        ("ranking", SAME, None, "the same positive in all 3 examples, 'Rome'"),
        (Matryoshka(MultipleNegatives(), dims=[8]), SAME, None, "the same positive in all 3 examples"),
        ("Contrastive", PAIRS, [1, 1, 1], "learns from examples with different labels. Received: 1.0 for all"),
        ("OnlineContrastive", PAIRS, [0, 0, 0], "with different labels. Received: 0.0 for all"),
        (BatchHard(), ["a", "b", "c"], ["x", None, "x"], "needs a class for each example. Received: None or NaN"),
        (BatchHard(), ["a", "b", "c"], ["x", float("nan"), "x"], "needs a class for each example"),
        ("MegaBatchMargin", SAME, None, "the same positive in all 3 examples"),
        ("ranking", [], None, "There must be at least one example. Received: none"),
    ],
)  # fmt: skip
def test_examples_are_refused_by_name(objective, x, y, message, embedder):
    model = embedder(objective)
    before = [np.array(weight) for weight in model.get_weights()]
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, batch_size=3, verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.one_backend
def test_labels_are_needed_to_evaluate_but_not_to_predict(embedder):
    model = embedder("CoSENT")
    with pytest.raises(ValueError, match="CoSENT needs labels"):
        model.evaluate(PAIRS, verbose=0)
    with pytest.raises(ValueError, match="CoSENT needs labels"):
        model.fit(PAIRS, [0.1, 0.2, 0.3], validation_data=PAIRS, verbose=0)
    assert model.predict(PAIRS, verbose=0).shape == (3, 2, 32)
    assert model.predict(["Ann", ""], verbose=0).shape == (2, 32)


def test_batches_of_a_source_may_differ_in_width(embedder):
    short, long = [("Ann", "Rome"), ("Bob", "Bonn")], [("Ann lives in Rome .", "in Rome"), ("who met Bob ?", "Ann met")]
    model = embedder("ranking")
    losses = model.fit(Batched([(short, None), (long, None)]), shuffle=False, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(losses).all()


@pytest.mark.one_backend
@pytest.mark.parametrize("shuffle", [False, True])
def test_only_the_whole_run_is_checked(shuffle, embedder):
    """The last batch of a source and the validation may have a single example, or equal labels."""
    last = [(PAIRS[:2], None), (PAIRS[2:], None)]
    assert embedder("ranking").fit(Batched(last), shuffle=shuffle, verbose=0).history["loss"][0] >= 0
    model = embedder("Contrastive")
    model.fit(PAIRS, [1, 0, 1], validation_data=(PAIRS[:1], [1]), shuffle=shuffle, verbose=0)
    assert model.evaluate(PAIRS, [1, 1, 1], verbose=0) >= 0
    with pytest.raises(ValueError, match="with different labels"):
        model.fit(PAIRS, [1, 1, 1], shuffle=shuffle, verbose=0)
    reranker = Reranker(model.backbone, objective=SampledNegatives(), tokenizer=model.tokenizer)
    assert reranker.fit(Batched(last), shuffle=shuffle, verbose=0).history["loss"][0] >= 0


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdaptiveLayer("ranking", layers_per_step=-1), "`layers_per_step` of AdaptiveLayer must be at least 1"),
        (lambda: Matryoshka("ranking", dims=[8], dims_per_step=0), "`dims_per_step` of Matryoshka must be at least 1"),
        (lambda: MultipleNegatives(scale=0.0), "`scale` of MultipleNegatives must be above 0. Received: 0.0"),
        (lambda: MultipleNegatives(scale=float("nan")), "`scale` in MultipleNegatives must be float. Received: nan"),
        (lambda: GIST(temperature=0.0), "`temperature` of GIST must be above 0"),
        (lambda: DistillKL(teacher_temperature=0.0), "`teacher_temperature` of DistillKL must be above 0"),
        (lambda: SampledNegatives(count=-1), "`count` of SampledNegatives must be at least 0"),
        (lambda: CoSENT(scale=-1.0), "`scale` of CoSENT must be above 0"),
        (lambda: OnlineContrastive(margin=0.0), "`margin` of OnlineContrastive must be above 0"),
        (lambda: LambdaLoss(k=-1), "`k` of LambdaLoss must be at least 1"),
        (lambda: Splade("ranking", warmup=-5), "`warmup` of Splade must be at least 0"),
        (lambda: NegativeRules(max_score=float("nan")), "`max_score` in NegativeRules must be float.*Received: nan"),
        (lambda: NegativeRules(num_negatives=2.5), "num_negatives"),
        (lambda: mine_hard_negatives([("a", "b")], print, corpus="abc"), "`corpus` must be a list of str"),
        (lambda: mine_hard_negatives([{"query": "a", "positive": "b"}], print), "'b'}. Use .*for row in rows"),
        (lambda: mine_hard_negatives([{"ab", "cd"}], print), "pairs .* of texts. Received: {"),
        (lambda: mine_hard_negatives([5], print), "pairs .* of texts. Received: 5"),
        (lambda: mine_hard_negatives([None], print), "pairs .* of texts. Received: None"),
        (lambda: mine_hard_negatives(PAIRS, "bm25"), "`model` must be an embedder, or .*Received: a str"),
        (lambda: mine_hard_negatives(PAIRS, print, rules={"num_negatives": 1}), "`rules` must be NegativeRules"),
        (lambda: mine_hard_negatives(["ab", "cd"], print), r"pairs \(query, positive\) of texts. Received: 'ab'"),
        (lambda: Collection(["a"], {"q": "a"}, {"q": {"d": 1}}), "`documents` of a collection must be a dict by ids"),
        (lambda: Collection({"d": "a"}, {"q": "a"}, [1]), "`relevant` of a collection must be a dict.*a list"),
        (lambda: Collection({"d": "a"}, {"q": "a"}, {"q": {"d": "1"}}), "Grades must be numbers. Received: '1' for"),
        (lambda: Collection({"d": None}, {"q": "a"}, {"q": {"d": 1}}), "str. Received: None for the document 'd'"),
        (lambda: StaticEmbedder.distil(None, width=0), "`width` must be at least 1"),
    ],
)  # fmt: skip
def test_options_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", [TextEmbedder, SparseEmbedder, MultiVectorEmbedder])
@pytest.mark.parametrize("objective", ["SampledNegatives", "BinaryCrossEntropy", "ListNet", LambdaLoss(k=10)])
def test_embedders_are_not_trained_by_losses_on_scores(kind, objective, tiny_backbone, tokenizer):
    with pytest.raises(ValueError, match="a loss on vectors, such as .*Received: .*, on scores"):
        kind(tiny_backbone(), objective=objective, tokenizer=tokenizer)


@pytest.mark.one_backend
def test_names_of_losses(tiny_backbone, tokenizer):
    with pytest.raises(ValueError, match="CoSENT.*Received: 'rankin'. Did you mean ranking?") as error:
        TextEmbedder(tiny_backbone(), objective="rankin", tokenizer=tokenizer)
    names = str(error.value).split(": ")[1].split(". Received")[0].split(", ")
    assert {"MultipleNegatives", "Splade", "ranking"} <= {*names}
    assert not {"ListNet", "ScoreLoss", "Wrapper", "Loss"} & {*names}  # on scores, and base classes
    with pytest.raises(ValueError, match="ListNet.*Received: 'ListNt'. Did you mean ListNet?"):
        Reranker(tiny_backbone(), objective="ListNt", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="a loss on vectors, .*Received: ListNet, on scores"):
        Matryoshka("ListNet", dims=[8])
    for base in ("ScoreLoss", "Wrapper"):
        with pytest.raises(ValueError, match="`objective` must be a loss, or its name"):
            TextEmbedder(tiny_backbone(), objective=base, tokenizer=tokenizer)


@pytest.mark.one_backend
def test_losses_must_fit_the_vectors(tiny_backbone, tokenizer):
    late = MultipleNegatives(scale=1.0, similarity="max_sim")
    for cls, objective in (
        (TextEmbedder, late),
        (SparseEmbedder, Splade(late)),
        (TextEmbedder, Matryoshka(late, dims=[8])),
    ):
        with pytest.raises(ValueError, match="one vector for each text, and 'max_sim' compares those of tokens"):
            cls(tiny_backbone(), objective=objective, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Received: DistillKL with 'dot'"):
        MultiVectorEmbedder(tiny_backbone(), objective=DistillKL(), tokenizer=tokenizer)
    sparse = SparseEmbedder(tiny_backbone(), objective=Splade(BatchHard()), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Splade needs two texts per example, or more. Received: 1"):
        sparse.fit(["a", "b", "c", "d"], [0, 0, 1, 1], verbose=0)


@pytest.mark.one_backend
def test_other_directions_learn_from_equal_positives(embedder):
    model = embedder(MultipleNegatives(directions=("query_to_doc", "doc_to_query")))
    assert model.fit(SAME, batch_size=3, verbose=0).history["loss"][0] > 0.01
    reranker = Reranker(model.backbone, objective=SampledNegatives(), tokenizer=model.tokenizer)
    with pytest.raises(ValueError, match="SampledNegatives takes the positives of other examples as negatives"):
        reranker.fit(SAME, batch_size=3, verbose=0)
    alone = Reranker(model.backbone, objective=SampledNegatives(count=0), tokenizer=model.tokenizer)
    assert np.isfinite(alone.fit([(*pair, "a cat") for pair in PAIRS], batch_size=3, verbose=0).history["loss"]).all()
    with pytest.raises(ValueError, match=r"SampledNegatives\(count=0\) needs negatives in every example"):
        alone.fit(PAIRS, batch_size=3, verbose=0)


@pytest.mark.one_backend
def test_judgments_may_be_lists_of_documents():
    for documents in (["d1"], {"d1"}, ("d1",)):
        collection = Collection({"d1": "a", "d2": "b"}, {"q": "c"}, {"q": documents})
        assert collection.relevant == {"q": {"d1": 1}}
    with pytest.raises(ValueError, match="Received: 'd1' for 'q'"):
        Collection({"d1": "a"}, {"q": "c"}, {"q": "d1"})
