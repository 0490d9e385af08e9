"""What the figures of the families show. `diagrams.py` explains the classes."""

from diagrams import Box, Repeat, Row, Skip, Stack, Text

MODELS = "kerasbert.models"


def attention(label="Self-attention", layer="attention", note="", cross=False):
    return Box("attention", label, layer, note, cross)


def norm(layer, label="LayerNorm", note=""):
    return Box("norm", label, layer, note)


def feed_forward(label="Feed-forward (GELU)", layer="feed_forward"):
    return Box("feed_forward", label, layer)


def table(label, layer):
    return Box("embedding", label, layer)


TOKENS = table("Token", "token_embedding")
POSITIONS = table("Position", "position_embedding")
SEGMENTS = table("Segment", "segment_embedding")


def post_norm(first, second=None):
    """Each branch is added to its input, and the sum is normalized."""
    second = second or feed_forward()
    return Skip((first,)), norm("attention_norm"), Skip((second,)), norm("feed_forward_norm")


def pre_norm(first, second=None, name="LayerNorm"):
    """Each branch reads a normalized copy, and the stream itself is never normalized inside the blocks."""
    second = second or feed_forward()
    return Skip((norm("attention_norm", name), first)), Skip((norm("feed_forward_norm", name), second))


def encoder(before, block, after, of_class, times="× 12", leaves_out=()):
    """A single stack: what comes before the blocks, the block, what comes after."""
    return (Stack((*before, Repeat(times, block), *after), block={of_class: leaves_out}),)


EMBEDDING_NORM = (norm("embedding_norm"),)


def embedded(*tables, after=EMBEDDING_NORM, ids="token ids, segment ids"):
    return (Text(ids), Row(tables), *after)


HIDDEN = Text("hidden states")
POOLER = (Box("other", "Pooler: tanh, first token", "pooler"), Text("pooled output"))
BERT_BLOCK = f"{MODELS}.bert.BertBlock"
TO_HIDDEN = Box("feed_forward", "Dense, to the hidden width", "embedding_projection")
DEBERTA_BLOCK = f"{MODELS}.deberta.deberta.DebertaBlock"
MASK_DECODER = Box("other", "Enhanced mask decoder", "mask_decoder", note="absolute positions")
DISENTANGLED = attention("Disentangled attention", note="relative positions")
MODERN_BLOCK = f"{MODELS}.modernbert.modernbert.ModernBertBlock"
ROTARY = attention("Attention: all or nearby", note="rotary positions")
T5_BLOCK = f"{MODELS}.t5.blocks.T5Block"
BY_DISTANCE = attention(note="bias by distance")
ENCODER_BIAS = attention("Self-attention + bias")
XL_BLOCK = f"{MODELS}.transformer_xl.transformer_xl.TransformerXLBlock"
XLNET_BLOCK = f"{MODELS}.xlnet.xlnet.XLNetBlock"
RECURRENT = f"{MODELS}.seq2seq_attention.recurrent_decoders"
RELU = feed_forward("Feed-forward (ReLU)")
CAUSAL = attention("Causal self-attention")
CROSS = (Box("attention", "Attention to the encoder", "cross_attention", cross=True), norm("cross_attention_norm"))


DIAGRAMS = {
    "Albert": encoder(
        embedded(TOKENS, POSITIONS, SEGMENTS, after=(norm("embedding_norm"), TO_HIDDEN)),
        (Skip((attention(),)), norm("norm"), Skip((feed_forward(),)), norm("norm")),
        POOLER,
        f"{MODELS}.albert.AlbertAttentionBlock {MODELS}.albert.AlbertFeedForwardBlock",
        times="× 12, shared",
    ),
    "Bert": encoder(embedded(TOKENS, POSITIONS, SEGMENTS), post_norm(attention()), POOLER, BERT_BLOCK),
    "Deberta": encoder(
        (Text("token ids"), TOKENS, norm("norm")),
        post_norm(DISENTANGLED),
        (MASK_DECODER, Text("masked tokens")),
        DEBERTA_BLOCK,
    ),
    "DebertaV2": encoder(
        (Text("token ids"), TOKENS, norm("norm")),
        post_norm(attention("Disentangled attention", note="distance buckets")),
        (MASK_DECODER, Text("masked tokens")),
        DEBERTA_BLOCK,
        times="× 12",
    ),
    "DistilBert": encoder(
        embedded(TOKENS, POSITIONS, ids="token ids"),
        post_norm(attention()),
        (HIDDEN,),
        f"{MODELS}.distilbert.DistilBertBlock",
        times="× 6",
    ),
    "Electra": (
        Stack(
            (
                Text("masked tokens"),
                Box("embedding", "Shared embeddings"),
                Box("other", "Small encoder"),
                Box("other", "MLM head, softmax"),
                Box("other", "Sample a token a mask"),
            ),
            title="Generator",
        ),
        Stack(
            (
                Text("tokens, some replaced"),
                Box("embedding", "Shared embeddings", "token_embedding", cross=True),
                norm("embedding_norm"),
                TO_HIDDEN,
                Repeat("× 12", post_norm(attention())),
                Box("other", "Replaced or original?"),
                Text("one answer a token"),
            ),
            title="Discriminator",
            block={BERT_BLOCK: ()},
        ),
    ),
    "Elmo": (
        Stack(
            (
                Text("characters of each word"),
                Box("embedding", "Convolutions, highway", "character_encoder"),
                Repeat(
                    "× 2",
                    (
                        Row(
                            (
                                Box("recurrent", "LSTM, left to right", "forward_layers"),
                                Box("recurrent", "LSTM, right to left", "backward_layers"),
                            ),
                            "",
                        ),
                    ),
                ),
                Box("other", "Learned mix of all layers", note="layers 0, 1, 2"),
                Text("word vectors"),
            ),
        ),
    ),
    "EuroBert": encoder(
        (Text("token ids"), TOKENS),
        pre_norm(
            attention("Attention, grouped queries", note="rotary positions"),
            feed_forward("Gated feed-forward (SiLU)"),
            "RMS norm",
        ),
        (norm("final_norm", "RMS norm"), HIDDEN),
        f"{MODELS}.eurobert.EuroBertBlock",
    ),
    "GPT": encoder(embedded(TOKENS, POSITIONS, after=(), ids="token ids"), post_norm(CAUSAL), (HIDDEN,), BERT_BLOCK),
    "GPT2": encoder(
        embedded(TOKENS, POSITIONS, after=(), ids="token ids"),
        pre_norm(CAUSAL),
        (norm("final_norm"), HIDDEN),
        f"{MODELS}.gpt2.GPT2Block",
    ),
    "Gte": encoder(
        embedded(TOKENS, SEGMENTS),
        post_norm(attention(note="rotary positions"), feed_forward("Gated feed-forward (GELU)")),
        (HIDDEN,),
        f"{MODELS}.gte.GteBlock",
    ),
    "JinaEmbeddingsV3": encoder(
        embedded(TOKENS, SEGMENTS),
        post_norm(attention(note="rotary positions")),
        (HIDDEN,),
        BERT_BLOCK,
        times="× 24",
    ),
    "GPTBert": encoder(
        (Text("token ids"), TOKENS, norm("embedding_norm")),
        (
            Skip((norm("attention_norm"), attention("Gated attention", note="distance buckets"))),
            Box("other", "Weighted sum of all states"),
            Skip((norm("feed_forward_norm"), feed_forward("Gated feed-forward"))),
            Box("other", "Weighted sum of all states"),
        ),
        (HIDDEN,),
        f"{MODELS}.gpt_bert.GPTBertAttentionBlock {MODELS}.gpt_bert.GPTBertFeedForwardBlock",
    ),
    "MobileBert": (
        Stack(
            (
                Text("token ids, segment ids"),
                Row((Box("embedding", "Three tokens", "token_projection"), POSITIONS, SEGMENTS)),
                norm("embedding_norm", "NoNorm"),
                Repeat(
                    "× 24",
                    (
                        Skip(
                            (
                                Row(
                                    (
                                        Box("feed_forward", "Bottleneck: residual", "input_bottleneck"),
                                        Box("feed_forward", "Bottleneck: query, key", "shared_bottleneck"),
                                    ),
                                    "",
                                ),
                                Skip((attention(note="values: full width"),)),
                                norm("attention_norm", "NoNorm"),
                                Box("feed_forward", "3 more feed-forwards"),
                                Skip((feed_forward("Feed-forward (ReLU)"),)),
                                norm("feed_forward_norm", "NoNorm"),
                                Box("feed_forward", "Dense, to the full width", "output_dense"),
                            )
                        ),
                        norm("output_norm", "NoNorm"),
                    ),
                ),
                HIDDEN,
            ),
            block={f"{MODELS}.mobilebert.MobileBertBlock": ()},
        ),
    ),
    "MPNet": encoder(
        embedded(TOKENS, POSITIONS, ids="token ids"),
        post_norm(BY_DISTANCE),
        (HIDDEN,),
        f"{MODELS}.mpnet.MPNetBlock",
    ),
    "ModernBert": encoder(
        (Text("token ids"), TOKENS, norm("embedding_norm")),
        pre_norm(ROTARY, feed_forward("Gated feed-forward")),
        (norm("final_norm"), HIDDEN),
        MODERN_BLOCK,
        times="× 22",
    ),
    "ModernBertDecoder": encoder(
        (Text("token ids"), TOKENS, norm("embedding_norm")),
        pre_norm(attention("Causal: all or nearby", note="rotary positions"), feed_forward("Gated feed-forward")),
        (norm("final_norm"), HIDDEN),
        MODERN_BLOCK,
        times="× 22",
    ),
    "NeoBert": encoder(
        (Text("token ids"), TOKENS),
        pre_norm(
            attention(note="rotary positions"),
            feed_forward("Gated feed-forward (SiLU)"),
            "RMS norm",
        ),
        (norm("final_norm", "RMS norm"), HIDDEN),
        f"{MODELS}.neobert.NeoBertBlock",
        times="× 28",
    ),
    "NomicBert": encoder(
        embedded(TOKENS, SEGMENTS),
        post_norm(attention(note="rotary positions"), feed_forward("Gated feed-forward (SiLU)")),
        (HIDDEN,),
        f"{MODELS}.nomic_bert.NomicBertBlock",
    ),
    "Roberta": encoder(embedded(TOKENS, POSITIONS, ids="token ids"), post_norm(attention()), (HIDDEN,), BERT_BLOCK),
    "Seq2SeqAttention": (
        Stack(
            (
                Text("source"),
                TOKENS,
                Row(
                    (
                        Box("recurrent", "GRU, left to right", "readers"),
                        Box("recurrent", "GRU, right to left", "readers"),
                    ),
                    "",
                ),
                Box("other", "One state for every word"),
            ),
            title="Encoder",
        ),
        Stack(
            (
                Text("target so far"),
                table("Token", "decoder_embedding"),
                Repeat(
                    "each word",
                    (
                        Box("attention", "Weights of all states", "scores", cross=True),
                        Box("other", "Weighted sum", "from_context"),
                        Box("recurrent", "GRU", "unit"),
                        Box("feed_forward", "Maxout", "output_layer"),
                    ),
                ),
                Box("other", "Softmax"),
                Text("next word"),
            ),
            title="Decoder",
            block={f"{RECURRENT}.AdditiveDecoder": ("inputs",)},
        ),
    ),
    "T5": (
        Stack(
            (
                Text("source"),
                TOKENS,
                Repeat("× 12", pre_norm(ENCODER_BIAS, RELU, "RMSNorm")),
                norm("final_norm", "RMSNorm"),
            ),
            title="Encoder",
            block={T5_BLOCK: ("cross_attention", "cross_attention_norm")},
        ),
        Stack(
            (
                Text("target so far"),
                TOKENS,
                Repeat(
                    "× 12",
                    (
                        Skip((norm("attention_norm", "RMSNorm"), attention("Causal attention + bias"))),
                        Skip((norm("cross_attention_norm", "RMSNorm"), CROSS[0])),
                        Skip((norm("feed_forward_norm", "RMSNorm"), RELU)),
                    ),
                ),
                norm("final_norm", "RMSNorm"),
                Text("hidden states"),
            ),
            title="Decoder",
            block={T5_BLOCK: ()},
        ),
    ),
    "Bart": (
        Stack(
            (
                *embedded(
                    TOKENS,
                    table("Position", "encoder_positions"),
                    after=(norm("encoder_embedding_norm"),),
                    ids="source",
                ),
                Repeat("× 6", post_norm(attention())),
            ),
            title="Encoder",
            block={f"{MODELS}.transformer.EncoderBlock": ()},
        ),
        Stack(
            (
                *embedded(
                    TOKENS,
                    table("Position", "decoder_positions"),
                    after=(norm("decoder_embedding_norm"),),
                    ids="target so far",
                ),
                Repeat(
                    "× 6",
                    (
                        Skip((CAUSAL,)),
                        norm("attention_norm"),
                        Skip((CROSS[0],)),
                        CROSS[1],
                        Skip((feed_forward(),)),
                        norm("feed_forward_norm"),
                    ),
                ),
                HIDDEN,
            ),
            title="Decoder",
            block={f"{MODELS}.transformer.DecoderBlock": ()},
        ),
    ),
    "Transformer": (
        Stack(
            (
                Text("source"),
                Row((TOKENS, Box("embedding", "Sinusoids"))),
                Repeat("× 6", post_norm(attention(), RELU)),
            ),
            title="Encoder",
            block={f"{MODELS}.transformer.EncoderBlock": ()},
        ),
        Stack(
            (
                Text("target so far"),
                Row((TOKENS, Box("embedding", "Sinusoids"))),
                Repeat(
                    "× 6",
                    (
                        Skip((CAUSAL,)),
                        norm("attention_norm"),
                        Skip((CROSS[0],)),
                        CROSS[1],
                        Skip((RELU,)),
                        norm("feed_forward_norm"),
                    ),
                ),
                Text("hidden states"),
            ),
            title="Decoder",
            block={f"{MODELS}.transformer.DecoderBlock": ()},
        ),
    ),
    "TransformerXL": encoder(
        (Text("token ids"), Box("embedding", "Adaptive token table", "token_embedding")),
        post_norm(attention("Causal, relative", note="memory of this block's inputs"), RELU),
        (HIDDEN,),
        XL_BLOCK,
        times="× 16",
    ),
    "WordVectors": (
        Stack(
            (
                Text("a word, and a word near it or a random one"),
                Row(
                    (
                        Box("embedding", "Vector of the word", "token_embedding"),
                        Box("embedding", "Vector of the context"),
                    ),
                    "",
                ),
                Box("other", "Dot product, sigmoid"),
                Text("near or random?"),
            ),
        ),
    ),
    "XLM": encoder(
        embedded(TOKENS, POSITIONS, table("Language", "language_embedding"), ids="token ids, language ids"),
        post_norm(attention()),
        (HIDDEN,),
        BERT_BLOCK,
    ),
    "XLNet": (
        Stack(
            (
                Text("token ids"),
                TOKENS,
                Repeat("× 12", post_norm(attention("Relative, sees itself"))),
                HIDDEN,
            ),
            title="Content stream",
            block={XLNET_BLOCK: ()},
            crosses_from="block",
        ),
        Stack(
            (
                Text("one vector, everywhere"),
                table("Query vector", "query_embedding"),
                Repeat("× 12", post_norm(attention("Relative, sees earlier", cross=True))),
                Text("predictions"),
            ),
            title="Query stream",
            block={XLNET_BLOCK: ()},
        ),
    ),
}
