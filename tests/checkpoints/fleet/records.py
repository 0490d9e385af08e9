"""One record for each published checkpoint, or group of alike checkpoints, whose folder is built in small.

The fields of the configs, the files and the names of tensors are those of the published folders. Only sizes differ.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoints.fleet import vocabularies as v


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint.

    Args:
        name: its names on the hub.
        kind: what it is for: a key of `comparison.KINDS`.
        config: config.json, without the number of tokens.
        tokenizer: function without arguments that returns the files of the tokenizer.
        layers: the modules after the encoder in the folder of an embedder, of `folders.LAYERS`.
        files: further files.
        native: the config under which transformers has the model, where the published one needs the code of others.
        built: the class of transformers that has the tensors of the file, or a function from the config to the tensors.
            Default: the first of `architectures`.
        tensors: function from the tensors of this class to those of the file.
        form: how the weights are stored, a key of `folders.FORMS`.
        spare_rows: rows of the table of tokens for which there are no tokens.
        refused: what the message says if the folder is refused.
        note: an exception, for the table in the documentation.
        tokens_of: function that returns the tokenizer.json with the right tokens, where transformers changes it.
    """

    name: str
    kind: str
    config: dict[str, Any]
    tokenizer: Callable[[], dict]
    layers: tuple[str, ...] = ()
    files: dict[str, Any] = dataclasses.field(default_factory=dict)
    native: dict[str, Any] | None = None
    built: str | Callable[[dict], dict] | None = None
    tensors: Callable[[dict, dict], dict] | None = None
    form: str = "safetensors"
    spare_rows: int = 0
    refused: str | None = None
    note: str = ""
    tokens_of: Callable[[], dict] | None = None


# {kind: the classes that read such a checkpoint}
CLASSES = {
    "embedder": "TextEmbedder",
    "reranker": "Reranker, TextClassifier",
    "sparse": "SparseEmbedder",
    "late interaction": "MultiVectorEmbedder",
    "masked LM": "MaskedLM",
    "masked LM and pairs": "MaskedLM with sentence_pair",
    "neobert": "MaskedLM",
    "encoder": "Backbone",
    "discriminator": "Discriminator",
    "classifier": "TextClassifier",
    "tagger": "TokenClassifier",
    "answers": "QuestionAnswerer",
}

# === Configs ===

# The fields of published files, with small sizes.
CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
_BERT, _ROBERTA, _DISTILBERT, _MPNET = (CONFIGS[name] for name in ("bert", "roberta", "distilbert", "mpnet"))
_DEBERTA, _MODERN, _NOMIC, _NEW, _EUROBERT = (
    CONFIGS[name] for name in ("deberta_v3", "modernbert", "nomic_bert", "new", "eurobert")
)
_SIZES = dict(hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=40)
# The ids of ModernBERT's special tokens in the tiny vocabulary, where they stand at the end as well.
_MODERN_IDS = dict(bos_token_id=507, cls_token_id=507, eos_token_id=508, sep_token_id=508, pad_token_id=509)
_EURO_IDS = dict(bos_token_id=500, eos_token_id=501, mask_token_id=502, pad_token_id=501)
_NOMIC_NATIVE = dict(
    model_type="nomic_bert",
    architectures=["NomicBertModel"],
    hidden_act="silu",
    max_position_embeddings=2048,
    **{**_SIZES, "intermediate_size": 256},
)
_GTE_NATIVE = dict(
    model_type="gte", architectures=["GteModel"], layer_norm_eps=1e-12, max_position_embeddings=8192, **_SIZES
)


def labels(*names):
    return dict(id2label={str(i): name for i, name in enumerate(names)}, label2id={n: i for i, n in enumerate(names)})


def of(config, *architectures, **changes):
    """A config with the given classes; `drop` names fields that it does not have."""
    dropped = changes.pop("drop", ())
    return {k: w for k, w in {**config, "architectures": [*architectures], **changes}.items() if k not in dropped}


def reranker(config, architecture, **changes):
    return of(config, architecture, **labels("LABEL_0"), **changes)


# === Tensors ===


def with_position_ids(tensors, config):
    """The buffer that versions before 4.31 stored."""
    import numpy as np

    prefix = next(name.partition("embeddings.")[0] for name in tensors if "embeddings.word_embeddings" in name)
    return {f"{prefix}embeddings.position_ids": np.arange(config["max_position_embeddings"])[None], **tensors}


def with_old_norms(tensors, config):
    """The names of the first conversions from TensorFlow."""
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {
        next((name.replace(new, old) for new, old in names.items() if name.endswith(new)), name): array
        for name, array in tensors.items()
    }


def further(prefix="", **shapes):
    """Random tensors that the classes of transformers do not have."""

    def add(tensors, config):
        import numpy as np

        rng = np.random.default_rng(9)
        more = {prefix + name.replace("__", "."): rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
        return {**tensors, **{name: array.astype("float32") for name, array in more.items()}}

    return add


def deberta_v3(tensors, config):
    """The heads of the published discriminator: that of masked tokens, and that of replaced tokens."""
    m, v = config["hidden_size"], config["vocab_size"]
    shapes = {"lm_predictions.lm_head.dense.weight": (m, m), "lm_predictions.lm_head.bias": (v,)}
    for name in ("lm_predictions.lm_head.dense.bias", "mask_predictions.dense.bias", "mask_predictions.LayerNorm.bias"):
        shapes[name] = (m,)
    shapes |= {f"{head}.LayerNorm.{leaf}": (m,) for head in ("lm_predictions.lm_head", "mask_predictions")
               for leaf in ("weight", "bias")}  # fmt: skip
    shapes |= {"mask_predictions.dense.weight": (m, m), "mask_predictions.classifier.weight": (1, m)}
    shapes["mask_predictions.classifier.bias"] = (1,)
    prefixed = {f"deberta.{name}": array for name, array in tensors.items()}
    return further(**{name.replace(".", "__"): shape for name, shape in shapes.items()})(prefixed, config)


def jina_v3(tensors, config):
    """Matrices of adapters beside each weight: (adapters, rank, inputs) and (adapters, outputs, rank)."""
    import numpy as np

    rng, adapters, rank, stored = np.random.default_rng(8), 5, 4, {}
    for name, array in tensors.items():
        path = f"roberta.{name}"
        if not (array.ndim == 2 and name.endswith(".weight")):
            stored[path] = array
            continue
        rows, columns = array.shape
        shapes = ((rank, columns), (rows, rank))
        if "embeddings" in name:
            shapes = ((rows, rank), (rank, columns))
        path = path.removesuffix(".weight") + ".parametrizations.weight"
        stored[f"{path}.original"] = array
        for letter, shape in zip("AB", shapes, strict=True):
            stored[f"{path}.0.lora_{letter}"] = rng.normal(0, 0.2, (adapters, *shape)).astype("float32")
    return stored


def stanford(tensors, config):
    """BERT's prefix, and a projection."""
    prefixed = {f"bert.{name}": array for name, array in tensors.items()}
    return further(linear__weight=(7, config["hidden_size"]))(prefixed, config)


def gte_multilingual(tensors, config):
    """A prefix, and the head for weights of tokens."""
    prefixed = {f"new.{name}": array for name, array in tensors.items()}
    return further(classifier__weight=(1, 24), classifier__bias=(1,))(prefixed, config)


def flash(tensors, config):
    """Some of the names in jina's own code."""
    names = {"encoder.layer.": "encoder.layers.", "attention.self.": "mixer."}
    return {re.sub("|".join(map(re.escape, names)), lambda m: names[m[0]], n): array for n, array in tensors.items()}


def neobert(config):
    from tests.models.test_neobert import authors_tensors

    return authors_tensors(vocabulary=config["vocab_size"])


# === Tokenizers ===

_OLD_BERT = dict(
    **dict(do_lower_case=True, tokenize_chinese_chars=True, strip_accents=None, do_basic_tokenize=True),
    **dict(never_split=None, name_or_path="nreimers/MiniLM-L6-H384-uncased", tokenizer_class="BertTokenizer"),
    **dict(model_max_length=512),
    **v.tokens_of(v.BRACKETS),
)  # fmt: skip
_SHORT = dict(do_lower_case=True, model_max_length=512)
_CASED = dict(do_lower_case=False, model_max_length=512)
_FAST_DEBERTA = dict(
    **dict(do_lower_case=False, split_by_punct=False, sp_model_kwargs={}, vocab_type="spm", model_max_length=512),
    **dict(tokenizer_class="DebertaV2Tokenizer", bos_token="[CLS]", eos_token="[SEP]", **v.tokens_of(v.BRACKETS)),
)


def uncased():
    return v.bert(settings=_SHORT)


def newer_uncased():
    return v.bert(settings=v.bert_settings())


def cased():
    return v.bert(lowercase=False, settings=_CASED)


def chinese():
    return v.bert(settings=v.bert_settings(model_max_length=512, tokenize_chinese_chars=True))


def vocabulary_only():
    return v.bert(whole_file=False)


def xlm_r():
    return v.xlm_roberta(dict(tokenizer_class="XLMRobertaTokenizer"), older=True)


def bge_m3():
    return v.xlm_roberta(dict(model_max_length=8192, tokenizer_class="XLMRobertaTokenizer", sp_model_kwargs={}))


def paraphrase_multilingual():
    settings = dict(do_lower_case=True, tokenize_chinese_chars=True, strip_accents=None, special_tokens_map_file=None)
    files = v.xlm_roberta({**settings, "tokenizer_class": "PreTrainedTokenizerFast"}, older=True)
    return {**files, "unigram.json": {"path": "unigram.json"}}


def roberta():
    return v.roberta(settings=dict(model_max_length=512))


def two_files():
    return v.roberta(whole_file=False)


def spm_only():
    return v.deberta(settings=dict(do_lower_case=False, vocab_type="spm"))


def fast_deberta():
    return v.deberta(whole_file=True, settings=_FAST_DEBERTA)


def for_long_texts():
    return v.bert(settings=v.bert_settings(model_max_length=8192))


_DEBERTA_NOTE = "transformers 5 leaves out the normalizer of the SentencePiece model: tokens as in tokenizer.json"

CHECKPOINTS = [
    # === Embedders of the first rows, and their encoders ===
    Checkpoint(
        "sentence-transformers/all-MiniLM-L6-v2",
        "embedder",
        of(_BERT, "BertModel", _name_or_path="nreimers/MiniLM-L6-H384-uncased"),
        lambda: v.bert(limits=True, settings=_OLD_BERT),
        ("mean", "normalize"),
        {"data_config.json": [{"name": "stackexchange", "lines": 1, "weight": 9}], "train_script.py": "pass\n"},
        tensors=with_position_ids,
    ),
    Checkpoint(
        "cross-encoder/ms-marco-MiniLM-L6-v2, -L12-v2, -L4-v2",
        "reranker",
        reranker(_BERT, "BertForSequenceClassification", sentence_transformers={
            "activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0.dev0"}),
        newer_uncased,
        tensors=with_position_ids,
    ),
    Checkpoint(
        "google-bert/bert-base-uncased",
        "masked LM and pairs",
        of(_BERT, "BertForMaskedLM"),
        uncased,
        built="BertForPreTraining",
        tensors=with_old_norms,
    ),
    Checkpoint(
        "BAAI/bge-small-en-v1.5",
        "embedder",
        of(_BERT, "BertModel", **labels("LABEL_0"), torch_dtype="float32"),
        newer_uncased,
        ("cls", "normalize", "lowercase"),
    ),
    Checkpoint(
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        "embedder",
        of(_BERT, "BertModel", _name_or_path="old_models/paraphrase-multilingual-MiniLM-L12-v2/0_Transformer"),
        paraphrase_multilingual,
        ("mean",),
        tensors=with_position_ids,
        note="`pad_token_id` of config.json is that of another tokenizer; padding does not matter",
    ),
    Checkpoint(
        "BAAI/bge-m3",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta", output_past=True, max_position_embeddings=130),
        bge_m3,
        ("cls", "normalize"),
        {"sparse_linear.pt": b"not read", "colbert_linear.pt": b"not read", "1_Pooling/readme.txt": ""},
        form="bin",
        note="dense vectors only: `sparse_linear.pt` and `colbert_linear.pt` are not read",
    ),
    Checkpoint(
        "sentence-transformers/all-mpnet-base-v2",
        "embedder",
        of(_MPNET, "MPNetForMaskedLM", _name_or_path="microsoft/mpnet-base"),
        v.mpnet,
        ("mean", "normalize"),
        built="MPNetModel",
        tensors=with_position_ids,
    ),
    Checkpoint(
        "FacebookAI/xlm-roberta-base, -large",
        "masked LM",
        of(_ROBERTA, "XLMRobertaForMaskedLM", model_type="xlm-roberta", output_past=True),
        xlm_r,
        form="both",
    ),
    Checkpoint(
        "BAAI/bge-reranker-v2-m3, -base, -large",
        "reranker",
        reranker(_ROBERTA, "XLMRobertaForSequenceClassification", model_type="xlm-roberta", classifier_dropout=None),
        bge_m3,
    ),
    Checkpoint(
        "FacebookAI/roberta-base, -large",
        "masked LM",
        of(_ROBERTA, "RobertaForMaskedLM"),
        roberta,
        form="both",
    ),
    Checkpoint(
        "nomic-ai/nomic-embed-text-v1.5, -v1",
        "embedder",
        _NOMIC,
        for_long_texts,
        ("mean",),
        native=_NOMIC_NATIVE,
        spare_rows=4,
    ),
    Checkpoint(
        "BAAI/bge-large-en-v1.5, bge-base-en-v1.5",
        "embedder",
        of(_BERT, "BertModel", **labels("LABEL_0")),
        newer_uncased,
        ("cls", "normalize", "lowercase"),
        form="both",
    ),
    Checkpoint(
        "sentence-transformers/paraphrase-multilingual-mpnet-base-v2",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta", output_past=True, gradient_checkpointing=False),
        xlm_r,
        ("mean",),
        tensors=with_position_ids,
    ),
    Checkpoint(
        "answerdotai/ModernBERT-base, -large",
        "masked LM",
        of(_MODERN, "ModernBertForMaskedLM", **_MODERN_IDS),
        v.modernbert,
        spare_rows=6,
    ),
    Checkpoint(
        "intfloat/multilingual-e5-large, -base",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta", output_past=True),
        xlm_r,
        ("mean", "normalize"),
        form="shards",
    ),
    Checkpoint(
        "intfloat/multilingual-e5-small",
        "embedder",
        of(_BERT, "BertModel", tokenizer_class="XLMRobertaTokenizer"),
        xlm_r,
        ("mean", "normalize"),
    ),
    Checkpoint(
        "distilbert/distilbert-base-uncased",
        "masked LM",
        of(_DISTILBERT, "DistilBertForMaskedLM"),
        uncased,
    ),
    Checkpoint(
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        "classifier",
        of(_DISTILBERT, "DistilBertForSequenceClassification", finetuning_task="sst-2", output_past=True,
           **labels("NEGATIVE", "POSITIVE")),
        lambda: {k: w for k, w in uncased().items() if k != "tokenizer.json"},
    ),
    Checkpoint(
        "google/electra-base-discriminator",
        "discriminator",
        of(_BERT, "ElectraForPreTraining", model_type="electra", embedding_size=24, summary_type="first",
           summary_activation="gelu", summary_last_dropout=0.1, summary_use_proj=True),
        uncased,
        form="bin",
    ),
    Checkpoint(
        "microsoft/deberta-v3-base, -large, mdeberta-v3-base",
        "encoder",
        of(_DEBERTA, drop=("architectures",)),
        spm_only,
        built="DebertaV2Model",
        tensors=deberta_v3,
        form="bin",
        spare_rows=7,
        note=_DEBERTA_NOTE,
        tokens_of=fast_deberta,
    ),
    Checkpoint(
        "mixedbread-ai/mxbai-embed-large-v1",
        "embedder",
        of(_BERT, "BertModel", use_cache=False, torch_dtype="float16"),
        newer_uncased,
        ("cls", "prompts"),
        form="float16",
    ),
    Checkpoint(
        "sentence-transformers/all-MiniLM-L12-v2, paraphrase-MiniLM-L6-v2, multi-qa-MiniLM-L6-cos-v1",
        "embedder",
        of(_BERT, "BertModel"),
        lambda: v.bert(settings=_OLD_BERT),
        ("mean",),
        tensors=with_position_ids,
    ),
    Checkpoint(
        "google-bert/bert-base-multilingual-cased, bert-base-cased",
        "masked LM",
        of(_BERT, "BertForMaskedLM", directionality="bidi", pooler_fc_size=768, pooler_num_attention_heads=12,
           pooler_num_fc_layers=3, pooler_size_per_head=128, pooler_type="first_token_transform"),
        cased,
        built="BertForPreTraining",
        tensors=with_old_norms,
    ),
    Checkpoint(
        "google-bert/bert-base-chinese, bert-large-uncased",
        "masked LM and pairs",
        of(_BERT, "BertForMaskedLM", directionality="bidi"),
        lambda: v.bert(settings=dict(do_lower_case=False, model_max_length=512)),
        built="BertForPreTraining",
        tensors=with_old_norms,
    ),
    Checkpoint(
        "sentence-transformers/all-distilroberta-v1, all-roberta-large-v1",
        "embedder",
        of(_ROBERTA, "RobertaForMaskedLM", position_embedding_type="absolute"),
        roberta,
        ("mean", "normalize"),
        built="RobertaModel",
        tensors=with_position_ids,
    ),
    Checkpoint(
        "cardiffnlp/twitter-roberta-base-sentiment-latest",
        "classifier",
        of(_ROBERTA, "RobertaForSequenceClassification", add_cross_attention=False, classifier_dropout=None,
           **labels("negative", "neutral", "positive")),
        two_files,
        form="bin",
    ),
    Checkpoint(
        "sentence-transformers/paraphrase-mpnet-base-v2, nli-mpnet-base-v2",
        "embedder",
        of(_MPNET, "MPNetModel"),
        v.mpnet,
        ("mean",),
        tensors=with_position_ids,
    ),
    Checkpoint(
        "sentence-transformers/multi-qa-mpnet-base-dot-v1",
        "embedder",
        of(_MPNET, "MPNetModel"),
        v.mpnet,
        ("cls",),
        tensors=with_position_ids,
    ),
    Checkpoint(
        "intfloat/e5-base-v2, -large-v2, -small-v2",
        "embedder",
        of(_BERT, "BertModel"),
        newer_uncased,
        ("mean", "normalize"),
        form="both",
    ),
    Checkpoint(
        "Alibaba-NLP/gte-base-en-v1.5, gte-large-en-v1.5",
        "embedder",
        of(_NEW, "NewModel", type_vocab_size=0, rope_theta=500000, rope_scaling={"factor": 2.0, "type": "ntk"},
           pad_token_id=0),
        for_long_texts,
        ("cls",),
        native={**_GTE_NATIVE, "type_vocab_size": 0, "pad_token_id": 0,
                "rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2 ** (2 / 8)}},
        spare_rows=6,
    ),
    Checkpoint(
        "Alibaba-NLP/gte-multilingual-base",
        "embedder",
        of(_NEW, "NewModel", "NewForTokenClassification", type_vocab_size=1, rope_theta=20000, pad_token_id=1,
           rope_scaling={"factor": 8.0, "type": "ntk"}, **labels("LABEL_0")),
        bge_m3,
        ("cls", "normalize"),
        native={**_GTE_NATIVE, "type_vocab_size": 1, "pad_token_id": 1,
                "rope_parameters": {"rope_type": "linear", "rope_theta": 160000.0, "factor": 8 ** (2 / 8)}},
        tensors=gte_multilingual,
        spare_rows=46,
        note="dense vectors only: the head of sparse weights is not read",
    ),
    Checkpoint(
        "BAAI/bge-large-zh-v1.5",
        "embedder",
        of(_BERT, "BertModel", **labels("LABEL_0"), directionality="bidi"),
        chinese,
        ("cls", "normalize", "lowercase"),
        form="bin",
    ),
    Checkpoint(
        "jinaai/jina-embeddings-v3",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta", position_embedding_type="rotary",
           rotary_emb_base=20000.0, max_position_embeddings=8194, use_flash_attn=True, truncate_dim=None,
           lora_adaptations=["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"],
           lora_rank=4, lora_alpha=1, lora_dropout_p=0.0, lora_main_params_trainable=False, load_trained_adapters=True,
           matryoshka_dimensions=[8, 24], emb_pooler=None, use_reentrant=False, classifier_dropout=None,
           auto_map={"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"}),
        bge_m3,
        ("mean", "normalize", "custom_st.Transformer"),
        native=of(_ROBERTA, "JinaEmbeddingsV3Model", model_type="jina_embeddings_v3", max_position_embeddings=8194,
                  rope_parameters={"rope_type": "default", "rope_theta": 20000.0}),
        tensors=jina_v3,
        note="`adapter=` of `from_preset` chooses one of the five adapters; here, without",
    ),
    Checkpoint(
        "jinaai/jina-embeddings-v2-small-en, -base-en",
        "embedder",
        of(_BERT, "JinaBertForMaskedLM", position_embedding_type="alibi", feed_forward_type="geglu", emb_pooler="mean",
           attn_implementation="torch", model_max_length=8192),
        for_long_texts,
        ("mean",),
        built="BertModel",
        refused="position_embedding_type='absolute'.*'alibi'",
        note="ALiBi",
    ),
    Checkpoint(
        "dslim/bert-base-NER",
        "tagger",
        of(_BERT, "BertForTokenClassification", _num_labels=9, output_past=True, **labels(
            "O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")),
        lambda: {**cased(), "added_tokens.json": {}, "special_tokens_map.json": v.tokens_of(v.BRACKETS)},
        tensors=further("bert.", pooler__dense__weight=(24, 24), pooler__dense__bias=(24,)),
        form="both",
    ),
    Checkpoint(
        "Babelscape/wikineural-multilingual-ner",
        "tagger",
        of(_BERT, "BertForTokenClassification", directionality="bidi", **labels("O", "B-PER", "I-PER")),
        lambda: v.bert(lowercase=False, settings=v.bert_settings(lowercase=False)),
        form="bin",
    ),
    Checkpoint(
        "d4data/biomedical-ner-all",
        "tagger",
        of(_DISTILBERT, "DistilBertForTokenClassification", **labels("O", "B-Activity", "I-Activity")),
        newer_uncased,
        form="bin",
    ),
    Checkpoint(
        "sentence-transformers/distiluse-base-multilingual-cased-v1",
        "embedder",
        of(_DISTILBERT, "DistilBertModel"),
        cased,
        ("mean", "dense"),
    ),
    Checkpoint(
        "sentence-transformers/LaBSE",
        "embedder",
        of(_BERT, "BertModel", directionality="bidi"),
        cased,
        ("cls", "dense", "normalize"),
        tensors=with_position_ids,
    ),
    Checkpoint(
        "nomic-ai/nomic-embed-text-v2-moe",
        "embedder",
        {**_NOMIC, "activation_function": "gelu", "num_experts": 8, "moe_every_n_layers": 2, "moe_top_k": 2,
         "expert_choice_router": False, "ffn_div": 1, "moe_impl": "megablocks", "mlp_fc1_bias": True, "n_layer": 2},
        xlm_r,
        ("mean", "normalize"),
        native=_NOMIC_NATIVE,
        refused="moe_every_n_layers=0.*moe_every_n_layers=2",
        note="mixture of experts",
    ),
    Checkpoint(
        "ProsusAI/finbert, nlptown/bert-base-multilingual-uncased-sentiment, lxyuan/distilbert-…-sentiments-student",
        "classifier",
        of(_BERT, "BertForSequenceClassification", **labels("positive", "negative", "neutral")),
        lambda: {**vocabulary_only(), "tokenizer_config.json": {"do_lower_case": True}},
        form="bin",
    ),
    Checkpoint(
        "SamLowe/roberta-base-go_emotions, j-hartmann/emotion-english-distilroberta-base",
        "classifier",
        of(_ROBERTA, "RobertaForSequenceClassification", problem_type="multi_label_classification",
           **labels("admiration", "amusement", "anger", "neutral")),
        roberta,
    ),
    Checkpoint(
        "unitary/toxic-bert",
        "classifier",
        of(_BERT, "BertForSequenceClassification", problem_type="multi_label_classification",
           **labels("toxic", "severe_toxic", "obscene")),
        uncased,
    ),
    Checkpoint(
        "deepset/roberta-base-squad2",
        "answers",
        of(_ROBERTA, "RobertaForQuestionAnswering", language="english", name="Roberta"),
        two_files,
        tensors=with_position_ids,
    ),
    Checkpoint(
        "distilbert/distilbert-base-cased-distilled-squad",
        "answers",
        of(_DISTILBERT, "DistilBertForQuestionAnswering", output_past=True),
        cased,
    ),
    Checkpoint(
        "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli, mDeBERTa-v3-base-xnli-multilingual-nli-2mil7",
        "classifier",
        of(_DEBERTA, "DebertaV2ForSequenceClassification", pooler_hidden_size=24,
           **labels("entailment", "neutral", "contradiction")),
        fast_deberta,
        spare_rows=7,
        note=_DEBERTA_NOTE,
        tokens_of=fast_deberta,
    ),
    Checkpoint(
        "cross-encoder/nli-deberta-v3-base",
        "reranker",
        of(_DEBERTA, "DebertaV2ForSequenceClassification", pooler_hidden_size=24, sentence_transformers={
            "activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"},
           **labels("contradiction", "entailment", "neutral")),
        fast_deberta,
        spare_rows=7,
        note=_DEBERTA_NOTE,
        tokens_of=fast_deberta,
    ),
    Checkpoint(
        "microsoft/BiomedNLP-BiomedBERT-base-…, SapBERT, scibert, biobert",
        "masked LM",
        of(_BERT, "BertForMaskedLM"),
        lambda: {**vocabulary_only(), "tokenizer_config.json": {"do_lower_case": True}},
        form="bin",
    ),
    Checkpoint(
        "emilyalsentzer/Bio_ClinicalBERT",
        "encoder",
        of(_BERT, drop=("architectures", "position_embedding_type", "transformers_version")),
        vocabulary_only,
        built="BertForPreTraining",
        form="legacy",
    ),
    Checkpoint(
        "Snowflake/snowflake-arctic-embed-m-v1.5, -xs, -s, -m, -l",
        "embedder",
        of(_BERT, "BertModel"),
        newer_uncased,
        ("cls", "normalize", "prompts"),
    ),
    Checkpoint(
        "Snowflake/snowflake-arctic-embed-m-long",
        "embedder",
        {**_NOMIC, "rotary_scaling_factor": 2, "max_trained_positions": 32},
        for_long_texts,
        ("cls", "normalize", "prompts"),
        native={**_NOMIC_NATIVE, "max_position_embeddings": 32,
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0}},
        spare_rows=4,
    ),
    Checkpoint(
        "Snowflake/snowflake-arctic-embed-m-v2.0",
        "embedder",
        of(_NEW, "GteModel", model_type="gte", type_vocab_size=1, rope_theta=160000, rope_scaling=None, pad_token_id=1),
        bge_m3,
        ("cls", "normalize", "prompts"),
        native={**_GTE_NATIVE, "type_vocab_size": 1, "pad_token_id": 1,
                "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0}},
        spare_rows=46,
    ),
    Checkpoint(
        "Snowflake/snowflake-arctic-embed-l-v2.0",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta", max_position_embeddings=130),
        bge_m3,
        ("cls", "normalize", "prompts"),
    ),
    Checkpoint(
        "thenlper/gte-small, -base, -large",
        "embedder",
        of(_BERT, "BertModel", torch_dtype="float16"),
        newer_uncased,
        ("mean", "normalize"),
        form="float16",
    ),
    Checkpoint(
        "ibm-granite/granite-embedding-30m-english, -125m-english",
        "embedder",
        of(_ROBERTA, "RobertaModel", torch_dtype="bfloat16"),
        lambda: v.roberta(settings=dict(
            **dict(add_prefix_space=False, errors="replace", trim_offsets=True, tokenizer_class="RobertaTokenizer"),
            **dict(model_max_length=512, **v.tokens_of(v.ANGLES, mask_takes_space=True)))),
        ("cls", "normalize"),
        form="bfloat16",
    ),
    Checkpoint(
        "ibm-granite/granite-embedding-107m-multilingual, -278m-multilingual",
        "embedder",
        of(_ROBERTA, "XLMRobertaModel", model_type="xlm-roberta"),
        lambda: v.xlm_roberta(dict(tokenizer_class="XLMRobertaTokenizer"), slow_file=False),
        ("cls", "normalize"),
    ),
    Checkpoint(
        "Alibaba-NLP/gte-modernbert-base",
        "embedder",
        of(_MODERN, "ModernBertModel", **_MODERN_IDS, torch_dtype="float16"),
        v.modernbert,
        ("cls",),
        form="float16",
        spare_rows=6,
    ),
    Checkpoint(
        "Alibaba-NLP/gte-reranker-modernbert-base",
        "reranker",
        reranker(_MODERN, "ModernBertForSequenceClassification", **_MODERN_IDS),
        v.modernbert,
        spare_rows=6,
    ),
    Checkpoint(
        "nomic-ai/modernbert-embed-base",
        "embedder",
        of(_MODERN, "ModernBertModel", **_MODERN_IDS),
        v.modernbert,
        ("mean", "normalize", "prompts"),
        spare_rows=6,
    ),
    Checkpoint(
        "ibm-granite/granite-embedding-english-r2, -small-english-r2",
        "embedder",
        of(_MODERN, "ModernBertModel", **_MODERN_IDS, local_rope_theta=10000.0, global_rope_theta=80000.0),
        v.modernbert,
        ("cls", "normalize"),
        spare_rows=6,
    ),
    Checkpoint(
        "jhu-clsp/mmBERT-base, -small",
        "masked LM",
        of(_MODERN, "ModernBertForMaskedLM", bos_token_id=2, cls_token_id=1, eos_token_id=1, sep_token_id=1,
           pad_token_id=0, mask_token_id=4, position_embedding_type="sans_pos", local_rope_theta=160000.0,
           rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 160000.0}}),
        v.gemma,
        form="bin",
        spare_rows=3,
    ),
    Checkpoint(
        "jhu-clsp/ettin-encoder-17m … 1b",
        "masked LM",
        of(_MODERN, "ModernBertForMaskedLM", **_MODERN_IDS, local_rope_theta=160000.0, norm_eps=1e-5,
           position_embedding_type="sans_pos", repad_logits_with_grad=False),
        v.modernbert,
        form="bin",
        spare_rows=6,
    ),
    Checkpoint(
        "mixedbread-ai/mxbai-rerank-xsmall-v1, -base-v1, -large-v1",
        "reranker",
        reranker(_DEBERTA, "DebertaV2ForSequenceClassification", pooler_hidden_size=24),
        fast_deberta,
        spare_rows=7,
        note=_DEBERTA_NOTE,
        tokens_of=fast_deberta,
    ),
    Checkpoint(
        "protectai/deberta-v3-base-prompt-injection, meta-llama/Prompt-Guard-86M",
        "classifier",
        of(_DEBERTA, "DebertaV2ForSequenceClassification", pooler_hidden_size=24,
           problem_type="single_label_classification", **labels("SAFE", "INJECTION")),
        fast_deberta,
        spare_rows=7,
        note=_DEBERTA_NOTE,
        tokens_of=fast_deberta,
    ),
    Checkpoint(
        "naver/splade-v3, splade-cocondenser-ensembledistil",
        "sparse",
        of(_BERT, "BertForMaskedLM"),
        newer_uncased,
        ("splade",),
    ),
    Checkpoint(
        "colbert-ir/colbertv2.0",
        "late interaction",
        of(_BERT, "HF_ColBERT", drop=("position_embedding_type",)),
        uncased,
        files={"artifact.metadata": {
            **dict(query_token_id="[unused0]", doc_token_id="[unused1]", query_token="[Q]", doc_token="[D]"),
            **dict(dim=7, similarity="cosine", query_maxlen=12, doc_maxlen=20, mask_punctuation=True),
            **dict(attend_to_mask_tokens=False),
        }},
        built="BertModel",
        tensors=stanford,
    ),
    Checkpoint(
        "lightonai/GTE-ModernColBERT-v1",
        "late interaction",
        of(_MODERN, "ModernBertModel", **_MODERN_IDS),
        v.modernbert,
        ("pylate",),
        spare_rows=6,
    ),
    Checkpoint(
        "EuroBERT/EuroBERT-210m, -610m, -2.1B",
        "masked LM",
        {**_EUROBERT, **_EURO_IDS},
        v.eurobert,
        form="bfloat16",
    ),
    Checkpoint(
        "chandar-lab/NeoBERT",
        "neobert",
        dict(
            **dict(model_type="neobert", architectures=["NeoBERTLMHead"], auto_map={"AutoModel": "model.NeoBERT"}),
            **dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=57, dim_head=8),
            **dict(max_length=64, norm_eps=1e-5, pad_token_id=0, embedding_init_range=0.02, decoder_init_range=0.02),
            **dict(classifier_init_range=0.02, kwargs={"classifier_init_range": 0.02}, trust_remote_code=True),
        ),
        uncased,
        built=neobert,
        tokens_of=uncased,
        note="transformers has no class: compared with the arithmetic of its authors",
    ),
    # === Refused ===
    Checkpoint(
        "jinaai/jina-reranker-v2-base-multilingual",
        "reranker",
        reranker(_ROBERTA, "XLMRobertaForSequenceClassification", model_type="xlm-roberta", use_flash_attn=True,
                 auto_map={"AutoModel": "modeling_xlm_roberta.XLMRobertaModel"}),
        bge_m3,
        tensors=flash,
        refused="use_flash_attn=False.*use_flash_attn=True",
        note="tensors of its own code",
    ),
    Checkpoint(
        "google/embeddinggemma-300m",
        "embedder",
        dict(model_type="gemma3_text", architectures=["Gemma3TextModel"], head_dim=8, use_bidirectional_attention=True,
             num_key_value_heads=1, **_SIZES),
        v.gemma,
        ("mean", "normalize"),
        built="BertModel",
        refused="model_type.*'gemma3_text'",
        note="a decoder",
    ),
    Checkpoint(
        "Qwen/Qwen3-Embedding-0.6B, jinaai/jina-embeddings-v5",
        "embedder",
        dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=8, num_key_value_heads=1, **_SIZES),
        v.modernbert,
        ("cls", "normalize"),
        built="BertModel",
        refused="model_type.*'qwen3'",
        note="a decoder",
    ),
]  # fmt: skip
