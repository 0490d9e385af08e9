"""The losses and their gradients against the numbers of sentence-transformers 6.2, on every backend."""

import numpy as np
from keras import ops

from kerasbert.retrieval import (
    ADRMSE,
    GIST,
    AdaptiveLayer,
    AnglE,
    BatchAll,
    BatchHard,
    BatchHardSoftMargin,
    BatchSemiHard,
    BinaryCrossEntropy,
    Contrastive,
    CoSENT,
    CosineSimilarity,
    CrossEntropy,
    DistillKL,
    EmbeddingMSE,
    GlobalOrthogonal,
    LambdaLoss,
    ListMLE,
    ListNet,
    MarginMSE,
    Matryoshka,
    MeanSquaredError,
    MegaBatchMargin,
    MultipleNegatives,
    OnlineContrastive,
    PListMLE,
    RankNet,
    SampledNegatives,
    ScoreMarginMSE,
    Splade,
    Triplet,
    flops,
    max_sim,
    splade_pooling,
)
from tests.models.reference import to_numpy
from tests.retrieval.golden import R, cases, check, embedder_arrays, losses_and_gradients, padded

DISTANCES = {"COSINE_DISTANCE": "cosine", "COSINE": "cosine", "EUCLIDEAN": "euclidean", "MANHATTAN": "manhattan"}
BY_CLASS = {
    "BatchHardTripletLoss": BatchHard,
    "BatchSemiHardTripletLoss": BatchSemiHard,
    "BatchAllTripletLoss": BatchAll,
    "BatchHardSoftMarginTripletLoss": BatchHardSoftMargin,
}


def embedder_loss(name, settings):
    """The loss of a case of the embedder file."""
    distance = DISTANCES.get(settings.get("distance"), settings.get("distance"))
    if name in BY_CLASS:
        margin = {} if name == "BatchHardSoftMarginTripletLoss" else {"margin": settings["margin"]}
        return BY_CLASS[name](distance=distance, **margin)
    if name.startswith("mnr"):
        names = {"hardness_mode": "hardness", "hardness_strength": "hardness_strength"}
        names |= {"directions": "directions", "partition_mode": "partition", "scale": "scale"}
        return MultipleNegatives(**{names[key]: value for key, value in settings.items()})
    if name == "gist":
        options = {key: value for key, value in settings.items() if key not in ("guide", "margin_strategy")}
        return GIST(**options, relative=settings.get("margin_strategy") == "relative")
    if name == "distill_kl":
        temperature = settings.get("temperature", settings.get("student_temperature", 1.0))
        return DistillKL(temperature, settings.get("teacher_temperature"))
    if name.startswith("matryoshka"):
        inner = {"mnr": MultipleNegatives(), "cosent": CoSENT(), "margin_mse": MarginMSE()}
        return Matryoshka(inner[name.removeprefix("matryoshka_")], settings["dims"], settings["weights"])
    return {
        "cosent": CoSENT(),
        "angle": AnglE(),
        "cosine_similarity": CosineSimilarity(),
        "contrastive": lambda: Contrastive(settings["margin"], distance),
        "online_contrastive": lambda: OnlineContrastive(settings["margin"], distance),
        "triplet": lambda: Triplet(settings["margin"], distance),
        "margin_mse": MarginMSE(),
        "embed_distill": lambda: EmbeddingMSE(settings["metric"]),
        "mega_batch_margin": MegaBatchMargin(),
        "global_orthogonal": GlobalOrthogonal(),
    }[name]


def embedder_problem(case, arrays):
    loss, settings = embedder_loss(case["name"], case["settings"]), case["settings"]
    loss = loss() if type(loss) is type(lambda: 0) else loss
    labels = case["labels"]
    if "guide" in settings:
        labels = np.stack([arrays[name] for name in settings["guide"]], axis=1)
    if case["name"] == "embed_distill":
        labels = arrays["t"]
    return (lambda *columns: loss(columns, labels)), [arrays[name] for name in case["columns"]]


def test_embedders():
    arrays = embedder_arrays()
    found = [case for case in cases("embedder") if case["name"] not in ("gradcache_linear", "adaptive_layer")]
    assert len(found) == 47
    check(found, [embedder_problem(case, arrays) for case in found])


def test_guides_of_equal_texts():
    """A positive that occurs in other rows is as similar for the guide as the row's own: none is left out."""
    vectors = [R(90, 16, 6), R(91, 16, 6)]
    guides = np.stack([R(92, 16, 8), np.tile(R(93, 1, 8), (16, 1))], axis=1)
    loss = GIST(0.1, contrast_anchors=False, contrast_positives=False)(vectors, guides)
    np.testing.assert_allclose(to_numpy(loss), to_numpy(MultipleNegatives(scale=10.0)(vectors)), rtol=1e-5)


def test_adaptive_layer():
    layers = [np.stack([R(start + 2 * i, 3, 5) for i in range(3)], axis=1) for start in (80, 81)]
    found = cases("embedder", "adaptive_layer")
    losses = [AdaptiveLayer("ranking", layers_per_step=None, weighting=c["settings"]["layer_weighting"]) for c in found]
    losses += [AdaptiveLayer("ranking", None, "uniform", 0.3, *weights) for weights in (*np.eye(3).tolist(), [2, 3, 5])]
    problems = [(lambda *columns, loss=loss: loss(columns), layers) for loss in losses]
    results = losses_and_gradients(problems)
    last, earlier, divergence, together = (loss for loss, _ in results[-4:])
    np.testing.assert_allclose(together, 2 * last + 3 * earlier + 5 * divergence, rtol=1e-5)
    for case, (loss, (anchors, _)) in zip(found, results[:-4], strict=True):
        np.testing.assert_allclose(loss, case["loss"], rtol=1e-5)
        norms = [np.linalg.norm(anchors[:, i]) for i in range(3)]
        np.testing.assert_allclose(norms, case["grad_norms_anchor_per_layer"], rtol=1e-5)


def reranker_problem(case):
    settings, inputs = case["settings"], case["inputs"]
    if case["name"] == "mnr":
        scores = np.float32(inputs["scores"])
        rows, columns = len(scores), scores.shape[1] // len(scores)
        loss = SampledNegatives(None, settings["scale"], settings["activation"])
        table = loss.documents(rows, columns)
        return (lambda scores: loss(ops.take_along_axis(scores, ops.convert_to_tensor(table), axis=1))), [scores]
    scores, labels = padded(inputs.get("logits", inputs.get("scores"))), padded(inputs["labels"])
    weights = None
    if scores.ndim == 2 and case["name"] not in ("cross_entropy", "margin_mse"):
        weights = padded([[1.0] * len(row) for row in inputs["logits"]])
    name = {"lambda_rank": "lambda_rank"}.get(settings.get("scheme"), settings.get("scheme", "none"))
    loss = {
        "bce": lambda: BinaryCrossEntropy(settings.get("pos_weight", 1.0)),
        "mse": MeanSquaredError,
        "cross_entropy": CrossEntropy,
        "margin_mse": ScoreMarginMSE,
        "list_net": ListNet,
        "list_mle": lambda: ListMLE(settings["respect_input_order"]),
        "plist_mle": lambda: PListMLE(settings["respect_input_order"]),
        "lambda": lambda: LambdaLoss(name, settings.get("k"), settings["sigma"], settings["log"]),
        "rank_net": RankNet,
        "adr_mse": lambda: ADRMSE(settings["alpha"]),
    }[case["name"]]()
    labels = labels.astype("int32") if case["name"] == "cross_entropy" else labels
    return (lambda scores: loss(scores, labels, weights)), [scores]


def test_rerankers():
    found = cases("cross_encoder")
    assert len(found) == 22
    check(found, [reranker_problem(case) for case in found])


def sparse_columns():
    return [np.maximum(R(seed, 3, 7), 0) for seed in (21, 22, 23)]


def test_sparse_losses():
    found = cases("sparse", "flops", "splade_mnr", "splade_distill")
    problems = []
    for case in found:
        settings = case["settings"]
        if case["name"] == "flops":
            array, threshold = np.maximum(R(22, 3, 7), 0), settings["threshold"]
            problems.append((lambda x, threshold=threshold: flops(x, threshold=threshold), [array]))
            continue
        weights = settings["document_weight"], settings["query_weight"]
        inner, labels = MultipleNegatives(scale=1, similarity="dot"), None
        if case["name"] == "splade_distill":
            inner, labels = DistillKL(settings["temperature"]), np.float32(case["inputs"]["labels"])
        loss = Splade(inner, *weights)
        problems.append((lambda *x, loss=loss, labels=labels: loss(x, labels), sparse_columns()))
        parts = case["parts"]
        for part, name in (
            ("base_loss", "loss"),
            ("document_regularizer_loss", "documents"),
            ("query_regularizer_loss", "queries"),
        ):
            step_parts = loss.parts([ops.convert_to_tensor(c) for c in sparse_columns()], *data_of(labels))
            np.testing.assert_allclose(to_numpy(step_parts[name]), parts[part], rtol=1e-5)
    assert len(found) == 4
    check(found, problems)


def data_of(labels):
    from kerasbert.retrieval import Step

    return labels if labels is None else ops.convert_to_tensor(labels), Step(ops.ones((3,)))


def test_sparse_pooling_and_schedules():
    found = cases("sparse", "splade_pooling")
    for case in found:
        options, mask = case["settings"], np.array(case["inputs"]["mask"], bool)
        pooled = to_numpy(splade_pooling(ops.convert_to_tensor(R(20, 2, 3, 7)), mask, **options))
        np.testing.assert_allclose(pooled, case["output"], rtol=1e-5)

    def total(settings, mask):
        return lambda x: ops.sum(splade_pooling(x, mask, **settings))

    problems = [(total(c["settings"], np.array(c["inputs"]["mask"], bool)), [R(20, 2, 3, 7)]) for c in found]
    for case, (_, gradients) in zip(found, losses_and_gradients(problems), strict=True):
        np.testing.assert_allclose(np.linalg.norm(gradients[0]), case["grad_norm_of_sum"], rtol=1e-5)
    schedules = cases("sparse", "regularizer_schedule")
    for case in schedules:
        loss = Splade("ranking", case["settings"]["max"], warmup=int(30 / 3), schedule=case["settings"]["type"])
        for step, weight in case["weight_at_step"].items():
            np.testing.assert_allclose(loss.factor(int(step)) * case["settings"]["max"], weight, rtol=1e-6)
            traced = loss.factor(ops.convert_to_tensor(int(step)))
            np.testing.assert_allclose(to_numpy(traced) * case["settings"]["max"], weight, rtol=1e-6)
    assert len(found) == 4 and len(schedules) == 2


def late_arrays():
    q, d = R(60, 2, 3, 4), R(61, 2, 2, 4, 4)
    q, d = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, d))
    inputs = cases("late", "maxsim")[0]["inputs"]
    return q, d, np.array(inputs["q_mask"], bool), np.array(inputs["d_mask"], bool)


def test_max_sim():
    (case,) = cases("late", "maxsim")
    q, d, q_mask, d_mask = late_arrays()
    q, d = ops.convert_to_tensor(q), ops.convert_to_tensor(d)
    every, every_mask = ops.reshape(d, (4, 4, 4)), d_mask.reshape(4, 4)
    found = to_numpy(max_sim(q, every, q_mask, every_mask))
    np.testing.assert_allclose(found, case["scores"], atol=1e-6)
    np.testing.assert_allclose(
        to_numpy(max_sim(q, every, q_mask, every_mask, mean=True)), case["mean_maxsim"], atol=1e-6
    )
    np.testing.assert_allclose(to_numpy(max_sim(q, d, q_mask, d_mask)), case["kd_scores"], atol=1e-6)
    zeros = to_numpy(max_sim(q, every, q_mask, every_mask, exclude_padding=False))
    np.testing.assert_allclose(zeros, case["pylate_scores"], atol=1e-6)


def test_late_interaction():
    q, d, q_mask, d_mask = late_arrays()
    found = cases("late", "mnr", "distill_kl", "margin_mse", "pylate_distillation")
    problems = []
    for case in found:
        settings = case["settings"]
        labels = np.float32(settings["labels"]) if "labels" in settings else None
        if case["name"] == "mnr":
            loss = MultipleNegatives(scale=settings["scale"], similarity="max_sim")
        elif case["name"] == "margin_mse":
            loss = MarginMSE(similarity="max_sim")
        else:
            temperature = settings.get("temperature", settings.get("student_temperature", 1.0))
            options = {"min_max": settings.get("normalize_scores", False)}
            loss = DistillKL(temperature, settings.get("teacher_temperature"), "max_sim", **options)

        def compute(q, d, loss=loss, labels=labels):
            documents = [(d[:, i], d_mask[:, i]) for i in range(2)]
            return loss([(q, q_mask), *documents], labels)

        problems.append((compute, [q, d]))
    assert len(found) == 7
    check(found, problems)
