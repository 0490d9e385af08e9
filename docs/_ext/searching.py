"""The search of the built pages, as a browser runs it, and queries whose first hit must be the page that answers.

`Search` reads `searchindex.js` and ranks as the `searchtools.js` of Sphinx 9 does: titles, entries of the index,
objects, and words of the text, with the weights of `scorer.js`. A hit counts once, with its best score; equal scores
are in the order of their titles. If nothing is found, the pages with some of the words are.
"""

import json
import re
from pathlib import Path

import snowballstemmer
from sphinx.search.en import SearchEnglish
from sphinx.util.index_entries import split_index_msg

SCORER = (Path(__file__).parent / "scorer.js").read_text(encoding="utf-8")
WEIGHTS = json.loads(re.search(r"const WEIGHTS = (\{.*?\});", SCORER, flags=re.DOTALL)[1])

# {what a user types: the page that answers}
QUERIES = {
    "how to fine-tune bert": "guides/classify",
    "fine tune on my own data": "guides/classify",
    "predict probabilities": "guides/classify",
    "binary classification": "guides/classify",
    "hyperparameter tuning": "guides/classify",
    "long text classification": "guides/classify",
    "split long text": "guides/classify",
    "ratings": "guides/classify",
    "overfitting": "troubleshooting",
    "loss not decreasing": "troubleshooting",
    "save best model": "troubleshooting",
    "speed up training": "troubleshooting",
    "load from huggingface": "guides/hub",
    "text similarity": "guides/embed",
    "compare two sentences": "guides/embed",
    "extract features": "guides/features",
    "last hidden state": "guides/features",
    "vocabulary size": "guides/pretrain",
    "masked language modeling": "guides/pretrain",
    "gpu memory": "mixed_precision",
    "train on multiple gpus": "scaling",
    "switch backend": "installation",
    "list of models": "choosing",
    "rerank documents": "guides/rerank",
    "custom head": "guides/keras_models",
    "pytorch to keras": "guides/from_transformers",
    "api reference": "api/index",
    "authentication": "guides/serving",
    "deduplicate": "guides/clusters",
    "build a search engine": "guides/retrieval",
    "getting started": "quickstart",
    "install": "installation",
    "license": "installation",
    "cite": "installation",
    "multi-GPU": "scaling",
    "several GPUs": "scaling",
    "TPU": "scaling",
    "Slurm": "scaling",
    "mixed precision": "mixed_precision",
    "out of memory": "mixed_precision",
    "GPU": "mixed_precision",
    "gradient accumulation": "mixed_precision",
    "pandas": "guides/tables",
    "dataframe": "guides/tables",
    "semantic search": "guides/retrieval",
    "hard negatives": "guides/retrieval",
    "early stopping": "troubleshooting",
    "nan loss": "troubleshooting",
    "custom objective": "guides/custom",
    "custom model": "guides/keras_models",
    "how fast": "results/speed",
    "benchmark": "results/speed",
    "span corruption": "families/t5",
    "masked language model": "guides/pretrain",
    "train from scratch": "guides/pretrain",
    "sentiment analysis": "guides/classify",
    "multi-label": "guides/classify",
    "named entity recognition": "guides/tag",
    "question answering": "guides/answer",
    "sentence transformers": "guides/from_sentence_transformers",
    "TFBertModel": "guides/from_transformers",
    "KerasHub": "guides/from_keras_hub",
    "ONNX": "guides/export",
    "LoRA": "guides/lora",
    "quantization": "guides/quantize",
    "reranker": "guides/rerank",
    "few-shot": "guides/few_labels",
    "zero-shot": "guides/few_labels",
    "summarization": "guides/text_to_text",
    "REST API": "guides/serving",
    "Docker": "guides/serving",
    "resume training": "guides/checkpoints",
    "ColBERT": "guides/late_interaction",
    "learning rate": "troubleshooting",
    "add a model": "adding_a_family",
    "own tokenizer": "guides/pretrain",
    "two GPUs": "scaling",
    "continue pretraining": "guides/continue_domain",
    "convert to transformers": "guides/checkpoints",
    "resume after a crash": "guides/checkpoints",
    "sentence embeddings": "guides/embed",
    "class weights": "troubleshooting",
    "tensorboard": "troubleshooting",
    "which model": "choosing",
    "long documents": "troubleshooting",
    "batch inference": "troubleshooting",
    "random seed": "troubleshooting",
    "release notes": "release_notes",
    "save model": "guides/checkpoints",
    "load model": "guides/features",
    "fill mask": "guides/features",
    "hidden states": "guides/features",
    "attention weights": "guides/features",
    "finetuning": "guides/classify",
    "max length": "troubleshooting",
    "context length": "troubleshooting",
    "weights and biases": "troubleshooting",
    "topic modeling": "guides/other_libraries",
    "KERAS_BACKEND": "installation",
    "Colab": "installation",
    "MPS": "installation",
    "CUDA out of memory": "mixed_precision",
    "semantic textual similarity": "guides/embed",
    "Trainer": "guides/from_transformers",
    "cross-validation": "guides/evaluate",
    "evaluation": "guides/evaluate",
    "metrics": "guides/evaluate",
    "confusion matrix": "guides/evaluate",
    "clustering": "guides/clusters",
    "paraphrase mining": "guides/clusters",
    "duplicates": "guides/clusters",
    "learning curves": "guides/pictures",
    "visualization": "guides/pictures",
    "train tokenizer": "guides/pretrain",
    "BPE": "guides/pretrain",
    "vector database": "guides/retrieval",
    "FastAPI": "guides/serving",
    "fp16": "mixed_precision",
    "memory usage": "mixed_precision",
    "POS tagging": "guides/tag",
    "reproducibility": "troubleshooting",
    "huggingface": "guides/hub",
    "upload": "guides/hub",
    "command line": "cheat_sheet",
    "text generation": "guides/generation",
    "beam search": "guides/generation",
    "interpretability": "guides/pictures",
    "cross encoder": "guides/rerank",
    "bi-encoder": "guides/retrieval",
    "zero shot": "guides/few_labels",
    "SetFit": "guides/few_labels",
    "quantize int8": "guides/quantize",
    "whole word masking": "families/bert",
    "Python version": "installation",
    "YAML": "api/commands",
    "flash attention": "accelerators",
    "SPLADE": "guides/sparse",
    "knowledge distillation": "guides/distil",
    "freeze layers": "guides/keras_models",
    "custom layer": "guides/keras_models",
    "custom loss": "guides/custom",
    "packing": "batches",
    "padding": "batches",
    "Parquet": "guides/tables",
    "validation": "guides/evaluate",
    "perplexity": "guides/evaluate",
    "triplet loss": "losses",
    "Matryoshka": "losses",
    "faiss": "guides/retrieval",
    "OpenVINO": "guides/export",
    "BLiMP": "results/grammar",
    "quickstart": "quickstart",
    "ModernBERT": "families/modernbert",
    "choose a model": "choosing",
    "model sizes": "choosing",
    "pytorch multi gpu": "scaling",
    "DistributedDataParallel": "scaling",
    "star rating": "guides/classify",
    "resume fine-tuning": "troubleshooting",
    # No page has all of these words.
    "how do I export my classifier to onnx and serve it": "guides/export",
    "my model predicts only one class": "troubleshooting",
    "texts longer than 512 tokens": "guides/classify",
    "speed benchmark hardware": "results/speed",
}


class Search:
    """Searches built pages.

    Args:
        folder: of the HTML files.
    """

    def __init__(self, folder):
        text = (Path(folder) / "searchindex.js").read_text(encoding="utf-8")
        self.index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
        self.stem = snowballstemmer.stemmer("english").stemWord
        self.stopwords = SearchEnglish.stopwords

    def __call__(self, query):
        """[(page, title, score)], the best first, with the page's name as in the address."""
        lower = query.lower().strip()
        split = [word for word in re.split(r"[^\w]+", query.strip()) if word]
        kept = [word.lower() for word in split if word.lower() not in self.stopwords and not re.fullmatch(r"\d+", word)]
        main, other = self._entries(lower)
        hits = [*self._titles(lower), *main, *self._objects({word.lower() for word in split})]
        words = list(dict.fromkeys(self.stem(word) for word in kept))
        hits += self._words(words, words)
        if not hits and not other and len(words) > 1:  # no page has all words
            hits = self._sums(words)
        found = {}  # in the order of the results; the best of equal ones comes first
        for page, title, anchor, description, score in [*self._sorted(hits), *self._sorted(other)]:
            found.setdefault((page, title, anchor, description), score)
        return [(self.index["docnames"][page], title, score) for (page, title, *_), score in found.items()]

    @staticmethod
    def _sorted(hits):
        latest_first = [*hits][::-1]  # among equal titles
        return sorted(latest_first, key=lambda hit: (-hit[4], hit[1].lower()))

    def _titles(self, query):
        for title, places in self.index["alltitles"].items():
            if query in title.lower().strip() and len(query) >= len(title) / 2:
                for page, anchor in places:
                    own = self.index["titles"][page] == title
                    shown = title if own else f"{self.index['titles'][page]} > {title}"
                    score = rounded(15 * len(query) / len(title)) + own + self._weight(page)
                    yield page, shown, f"#{anchor}" if anchor is not None else "", None, score

    def _entries(self, query):
        """Hits among the entries of index directives: the main ones, and the others, which come last."""
        groups = {True: [], False: []}
        for entry, places in self.index["indexentries"].items():
            if query in entry and len(query) >= len(entry) / 2:
                for page, anchor, is_main in places:
                    score = rounded(100 * len(query) / len(entry))
                    hit = (page, self.index["titles"][page], f"#{anchor}" if anchor else "", None, score)
                    groups[bool(is_main)].append(hit)
        return groups[True], groups[False]

    def _objects(self, words):
        for word in words:
            for prefix, objects in self.index["objects"].items():
                for page, kind, priority, anchor, name in objects:
                    full = f"{prefix}.{name}" if prefix else name
                    last = full.lower().split(".")[-1]
                    if word not in full.lower():
                        continue
                    _, kind_name, kind_title = self.index["objnames"][str(kind)]
                    title = self.index["titles"][page]
                    if any(o not in f"{prefix} {name} {kind_title} {title}".lower() for o in words - {word}):
                        continue
                    score = 11 if word in (full.lower(), last) else 6 if word in last else 0
                    score += {0: 15, 1: 5, 2: -5}.get(priority, 0)
                    anchor = full if anchor == "" else f"{kind_name}-{full}" if anchor == "-" else anchor
                    yield page, full, f"#{anchor}", f"{kind_title}, in {title}", score

    def _sums(self, words):
        """The pages with some of the words, with the sums of the scores of each word."""
        sums = {}
        for hit in (hit for word in words for hit in self._words([word], words)):
            sums[hit[:4]] = sums.get(hit[:4], 0) + hit[4]
        return [(*hit, score) for hit, score in sums.items()]

    def _words(self, words, query):
        """The pages with all `words`, which are those of the query or one of them."""
        scores = {}  # {page: {word: score}}
        for word in words:
            for pages, score in self._pages_of(word):
                for page in [pages] if isinstance(pages, int) else pages:
                    scores.setdefault(page, {})[word] = score
        long = sum(len(word) > 2 for word in words)
        for page, found in scores.items():
            if len(found) in (len(words), long):
                in_headings = sum(page in self._pages_with_heading(word) for word in query)
                score = max(found.values()) + self._weight(page) + WEIGHTS["heading"] * in_headings
                yield page, self.index["titles"][page], "", None, score

    def _weight(self, page):
        name = self.index["docnames"][page]
        folder = name.split("/")[0] if "/" in name else ""
        return WEIGHTS.get(name, WEIGHTS.get(folder, 0))

    def _pages_with_heading(self, word):
        pages = self.index["titleterms"].get(word, [])
        return [pages] if isinstance(pages, int) else pages

    def _pages_of(self, word):
        """The pages with a word in the text or a title, then those with longer words that contain it."""
        terms, titles = self.index["terms"], self.index["titleterms"]
        exact = [(table[word], score) for table, score in ((terms, 5), (titles, 15)) if word in table]
        partial = []
        if len(word) > 2:
            for table, score in ((terms, 2), (titles, 7)):
                if word not in table:
                    partial += [(pages, score) for term, pages in table.items() if word in term]
        return exact + partial


def rounded(number):
    """As in JavaScript: halves upwards."""
    return int(number + 0.5)


def wrong_answers(folder):
    """Says for which queries the first hit is another page."""
    search = Search(folder)
    for query, page in QUERIES.items():
        hits = search(query)
        first = hits[0][0] if hits else "nothing"
        if first != page:
            yield f"the search for {query!r} finds {first} before {page}"


def keep_entries(app, env):
    """Gives the search the entries of pages that are not written again; Sphinx itself forgets them."""
    for name, entries in env.domains.index_domain.entries.items():
        words = {
            (text, target or "", main)
            for kind, value, target, main, _ in entries
            for text in split_index_msg(kind, value)
        }
        env._search_index_index_entries.setdefault(name, sorted(words))
    return []


def setup(app):
    app.connect("env-updated", keep_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
