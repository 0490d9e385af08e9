"""The classes of this package that are registered with Keras as "kerasbert>NAME", by module.

A test compares the table with the classes. It is written down so that Keras can find a class that is not imported yet.
"""

REGISTERED = {
    "core.initializers": "CountedZeros CutoffNormal Orthogonal SinusoidalTable ZeroRow",
    "core.registered": "Config",
    "layers.attention": "MultiHeadAttention ProjectedAttention",
    "layers.composite": "Composite Layer",
    "layers.dense": "Dense",
    "layers.dropout": "Dropout",
    "layers.feed_forward": "FeedForward GatedFeedForward",
    "layers.heads": (
        "EndTokenClassifier FirstTokenClassifier LastTokenHead MaskedLMHead PooledClassifier SpanBoundaryHead "
        "TiedLMHead TokenHead TokenTableHead UntiedLMHead"
    ),
    "layers.relative_bias": "BucketedBias",
    "models.albert": "Albert AlbertAttentionBlock AlbertConfig AlbertFeedForwardBlock",
    "models.bart": "Bart BartConfig FixedBiasHead",
    "models.bert": "Bert BertBlock BertConfig",
    "models.deberta.convolution": "NeighborConvolution",
    "models.deberta.deberta": "Deberta DebertaBlock DebertaConfig DisentangledAttention",
    "models.deberta.deberta_v2": "BucketedAttention DebertaReplacedTokenHead DebertaV2 DebertaV2Config",
    "models.deberta.versions": "DebertaEmbeddings",
    "models.distilbert": "DistilBert DistilBertBlock DistilBertConfig",
    "models.electra": "Electra ElectraConfig ReplacedTokenHead",
    "models.elmo": "CharacterEncoder DirectionsHead Elmo ElmoConfig MixHead ProjectedLstm ScalarMix",
    "models.eurobert": "EuroBert EuroBertBlock EuroBertConfig GroupedAttention LateClassifier",
    "models.gpt": "GPT GPTConfig",
    "models.gpt2": "GPT2 GPT2Block GPT2Config",
    "models.gte": "Gte GteBlock GteConfig",
    "models.jina_embeddings_v3": "JinaEmbeddingsV3 JinaEmbeddingsV3Config",
    "models.gpt_bert": (
        "DepthAverage FirstTokenHead GPTBert GPTBertAttentionBlock GPTBertConfig GPTBertFeedForwardBlock "
        "GPTBertTransform GatedAttention NextTokenHead NormedFeedForward"
    ),
    "models.mobilebert": (
        "Bottleneck BottleneckAttention MobileBert MobileBertBlock MobileBertConfig NoNorm SplitMaskedLMHead "
        "TrigramProjection"
    ),
    "models.modernbert.decoder": "ModernBertDecoder ModernBertDecoderConfig",
    "models.modernbert.heads": "HeadTransform TransformedHead TransformedTableHead",
    "models.modernbert.modernbert": "ModernBert ModernBertBlock ModernBertConfig",
    "models.mpnet": "MPNet MPNetBlock MPNetConfig",
    "models.neobert": "NeoBert NeoBertBlock NeoBertConfig",
    "models.nomic_bert": "NomicBert NomicBertBlock NomicBertConfig",
    "models.roberta": "Roberta RobertaConfig",
    "models.seq2seq_attention.recurrent_decoders": (
        "AdditiveDecoder AdditiveScore DotScore GatedRecurrentUnit LocationScore MultiplicativeDecoder "
        "MultiplicativeScore PlainDecoder Reader"
    ),
    "models.seq2seq_attention.seq2seq_attention": "Seq2SeqAttention Seq2SeqAttentionConfig VocabularyHead",
    "models.t5.blocks": "T5Attention T5Block T5LanguageModelHead T5Stack",
    "models.t5.t5": "T5 T5Config",
    "models.transformer": (
        "DecoderBlock EncoderBlock PreNormDecoderBlock PreNormEncoderBlock Transformer TransformerConfig"
    ),
    "models.transformer_xl.adaptive_softmax": "AdaptiveEmbedding AdaptiveSoftmax Clusters",
    "models.transformer_xl.attention": "SegmentAttention",
    "models.transformer_xl.transformer_xl": (
        "PreNormTransformerXLBlock TransformerXL TransformerXLBlock TransformerXLConfig"
    ),
    "models.word_vectors": "ContextHead MeanHead WordVectors WordVectorsConfig",
    "models.xlm": "SequenceSummary SummaryChoice XLM XLMConfig",
    "models.xlnet.two_streams": "RelativeQueries TwoStreamAttention",
    "models.xlnet.xlnet": "LastTokenClassifier XLNet XLNetBlock XLNetConfig",
    "objectives.bidirectional_lm": "BidirectionalLM",
    "objectives.causal_lm": "CausalLM",
    "objectives.discriminator": "Discriminator",
    "objectives.distillation": "Distillation",
    "objectives.hybrid_lm": "HybridLM",
    "objectives.knowledge_transfer": "KnowledgeTransfer",
    "objectives.masked_lm": "MaskedLM",
    "objectives.permutation_lm": "PermutationLM",
    "objectives.replaced_token": "ReplacedTokenDetection",
    "objectives.retro_mae": "RetroMAE RetroMAEDecoder",
    "objectives.seq2seq_lm": "Seq2SeqLM",
    "objectives.shared_embeddings": "DisentangledEmbedding",
    "objectives.sim_cse": "SimCSE",
    "objectives.skip_gram": "SkipGram",
    "objectives.span_boundary": "SpanBoundary",
    "objectives.tsdae": "CrossAttentions EmbeddingAttention TSDAE",
    "tasks.answer_network": "AnswerNetwork",
    "tasks.features": "FeatureHead",
    "tasks.multi_task": "MultiTask",
    "tasks.multi_vector_embedder": "MultiVectorEmbedder",
    "tasks.multiple_choice": "MultipleChoice",
    "tasks.poolings": "Pooling",
    "tasks.question_answerer": "QuestionAnswerer",
    "tasks.reranker": "Reranker",
    "tasks.sparse_embedder": "SparseEmbedder TokenWeights",
    "tasks.static_embedder": "StaticEmbedder",
    "tasks.text_classifier": "TextClassifier",
    "tasks.text_embedder": "TextEmbedder",
    "tasks.token_classifier": "TokenAccuracy TokenClassifier",
    "tasks.vector_layers": "DenseOfVectors LayerNormOfVectors ScaleToUnit VectorLayers",
    "training.alternating": "AlternatingOptimizers",
    "training.optimizers": "LossScale TransformerAdamW",
    "training.progressive": "ProgressiveAdamW ProgressiveLamb",
    "training.schedules": "InverseSquareRoot RootDecay RunDecay WarmupDecay",
    "training.tensor_scaled": "StableAdamW TransformerAdafactor TransformerLamb",
}
