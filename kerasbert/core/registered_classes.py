"""The classes of this package that are registered with Keras as "kerasbert>NAME", by module.

A test compares the table with the classes. It is written down so that Keras can find a class that is not imported yet.
"""

REGISTERED = {
    "core.initializers": "CountedZeros CutoffNormal Orthogonal SinusoidalTable ZeroRow",
    "core.registered": "Config",
    "layers.adaptive_softmax": "AdaptiveEmbedding AdaptiveSoftmax Clusters",
    "layers.attention": "MultiHeadAttention",
    "layers.composite": "Composite Layer",
    "layers.convolution": "NeighbourConvolution",
    "layers.dense": "Dense",
    "layers.dropout": "Dropout",
    "layers.embeddings": "DisentangledEmbedding",
    "layers.feed_forward": "FeedForward GatedFeedForward",
    "layers.heads": (
        "FirstTokenClassifier HeadTransform LastTokenClassifier LastTokenHead MaskedLMHead PooledClassifier "
        "SpanBoundaryHead TiedLMHead TokenHead TokenTableHead TransformedHead TransformedTableHead"
    ),
    "layers.relative_attention": "BucketedBias",
    "layers.segment_attention": "SegmentAttention",
    "layers.two_streams": "RelativeQueries TwoStreamAttention",
    "models.albert": "Albert AlbertAttentionBlock AlbertConfig AlbertFeedForwardBlock",
    "models.bert": "Bert BertBlock BertConfig",
    "models.deberta.deberta": "Deberta DebertaBlock DebertaConfig DisentangledAttention",
    "models.deberta.deberta_v2": "BucketedAttention DebertaReplacedTokenHead DebertaV2 DebertaV2Config",
    "models.deberta.disentangled": "DebertaEmbeddings",
    "models.distilbert": "DistilBert DistilBertBlock DistilBertConfig",
    "models.electra": "Electra ElectraConfig ReplacedTokenHead",
    "models.elmo": "CharacterEncoder DirectionsHead Elmo ElmoConfig MixHead ProjectedLstm ScalarMix",
    "models.gpt": "GPT GPTConfig",
    "models.gpt2": "GPT2 GPT2Block GPT2Config",
    "models.mobilebert": (
        "Bottleneck BottleneckAttention MobileBert MobileBertBlock MobileBertConfig NoNorm SplitMaskedLMHead "
        "TrigramProjection"
    ),
    "models.modernbert.decoder": "ModernBertDecoder ModernBertDecoderConfig",
    "models.modernbert.modernbert": "ModernBert ModernBertBlock ModernBertConfig",
    "models.roberta": "Roberta RobertaConfig",
    "models.seq2seq_attention.recurrent_decoders": (
        "AdditiveDecoder AdditiveScore DotScore GatedRecurrentUnit LocationScore MultiplicativeDecoder "
        "MultiplicativeScore PlainDecoder Reader"
    ),
    "models.seq2seq_attention.seq2seq_attention": "Seq2SeqAttention Seq2SeqAttentionConfig VocabularyHead",
    "models.t5.blocks": "EndTokenClassifier T5Attention T5Block T5LanguageModelHead T5Stack",
    "models.t5.t5": "T5 T5Config",
    "models.transformer": (
        "DecoderBlock EncoderBlock PreNormDecoderBlock PreNormEncoderBlock Transformer TransformerConfig"
    ),
    "models.transformer_xl": "PreNormTransformerXLBlock TransformerXL TransformerXLBlock TransformerXLConfig",
    "models.word_vectors": "ContextHead MeanHead WordVectors WordVectorsConfig",
    "models.xlm": "SequenceSummary SummaryChoice XLM XLMConfig",
    "models.xlnet.xlnet": "XLNet XLNetBlock XLNetConfig",
    "objectives.bidirectional_lm": "BidirectionalLM",
    "objectives.causal_lm": "CausalLM",
    "objectives.discriminator": "Discriminator",
    "objectives.distillation": "Distillation",
    "objectives.knowledge_transfer": "KnowledgeTransfer",
    "objectives.masked_lm": "MaskedLM",
    "objectives.permutation_lm": "PermutationLM",
    "objectives.replaced_token": "ReplacedTokenDetection",
    "objectives.seq2seq_lm": "Seq2SeqLM",
    "objectives.skip_gram": "SkipGram",
    "objectives.span_boundary": "SpanBoundary",
    "tasks.answer_network": "AnswerNetwork",
    "tasks.features": "FeatureHead",
    "tasks.multi_task": "MultiTask",
    "tasks.multiple_choice": "MultipleChoice",
    "tasks.question_answerer": "QuestionAnswerer",
    "tasks.text_classifier": "TextClassifier",
    "tasks.text_embedder": "TextEmbedder",
    "tasks.token_classifier": "TokenAccuracy TokenClassifier",
    "training.alternating": "AlternatingOptimizers",
    "training.optimizers": "LossScale TransformerAdamW",
    "training.progressive": "ProgressiveAdamW ProgressiveLamb",
    "training.schedules": "InverseSquareRoot RootDecay RunDecay WarmupDecay",
    "training.tensor_scaled": "StableAdamW TransformerAdafactor TransformerLamb",
}
