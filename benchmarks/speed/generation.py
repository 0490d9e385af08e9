"""Greedy generation of 64 tokens by models of the shapes of GPT-2 (124M) and T5-small, prompts of 32, 1 and 8 at once.

    KERAS_BACKEND=jax python -m benchmarks.speed.generation

Against `generate` of transformers (torch, a dynamic cache, as it comes), from the same random weights; the tokens must
be the same. No token ends a text, so that every one has 64 new tokens.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

PROMPT, NEW = 32, 64
BATCHES = (1, 8)
MODELS = ("gpt2", "t5")


def prepare(folder: Path, options) -> None:
    from kerasbert.backend import seed_everything
    from kerasbert.models import GPT2, T5
    from kerasbert.objectives import CausalLM, Seq2SeqLM

    seed_everything(0)
    random = np.random.default_rng(0)
    # Tables of words larger than usual: random models whose likeliest token leads by more than rounding.
    models = {
        "gpt2": CausalLM(GPT2.from_preset("gpt2_small", load_weights=False)),
        "t5": Seq2SeqLM(T5.from_preset("t5_small", load_weights=False)),
    }
    for name, model in models.items():
        for weight in model.weights:
            if len(weight.shape) == 2 and "embedding" not in weight.path:
                weight.assign(np.asarray(weight) * 3)
        model.save_to_preset(folder / name)
    np.save(folder / "prompts.npy", random.integers(1_000, 30_000, (max(BATCHES), PROMPT), "int32"))


def kerasbert(name: str, rows: int):
    def make(folder: Path) -> Work:
        from kerasbert.objectives import CausalLM, Seq2SeqLM

        model = (CausalLM if name == "gpt2" else Seq2SeqLM).from_preset(folder / name)
        prompts = list(np.load(folder / "prompts.npy")[:rows])

        def run() -> np.ndarray:
            return np.stack(model.generate(prompts, max_new_tokens=NEW, stop_ids=()))[:, -NEW:]

        return Work(run, {"tokens": run()}, rows * NEW)

    return make


def transformers(name: str, rows: int):
    def make(folder: Path) -> Work:
        import torch
        from transformers import GPT2LMHeadModel, T5ForConditionalGeneration

        model = (GPT2LMHeadModel if name == "gpt2" else T5ForConditionalGeneration).from_pretrained(folder / name)
        prompts = torch.tensor(np.load(folder / "prompts.npy")[:rows]).long()
        options = dict(max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        model.generation_config.eos_token_id = None

        def run() -> np.ndarray:
            return model.eval().generate(prompts, attention_mask=torch.ones_like(prompts), **options).numpy()[:, -NEW:]

        return Work(run, {"tokens": run()}, rows * NEW)

    return make


CONTENDERS, COMPARISONS = {}, []
for _model in MODELS:
    for _rows in BATCHES:
        _label = f"{_model}, {_rows} at once"
        CONTENDERS[f"kerasbert, {_label}"] = Contender(kerasbert(_model, _rows))
        CONTENDERS[f"transformers, {_label}"] = Contender(transformers(_model, _rows))
        COMPARISONS.append(Comparison(f"kerasbert, {_label}", f"transformers, {_label}", 1.3, tolerance=0))

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    compare("generation", prepare, CONTENDERS, COMPARISONS, unit="tokens", options=arguments.parse_args())
