/* The structures and constants that decoder.c shares with Python, and the table by which Python checks its copies of them
 * (`structs.py`). In comments on arrays, [beam] is a row for each hypothesis and [position] one for each target position.
 */
#include <stddef.h>
#include <stdint.h>

/* A prebuilt library has this code once for each LEVEL of instructions (prebuilt.py), which ends the names of functions. */
#ifdef LEVEL
#define JOIN(name, level) name##_##level
#define EXPANDED(name, level) JOIN(name, level)
#define EXPORT(name) EXPANDED(name, LEVEL)
#else
#define EXPORT(name) name
#endif

enum {
    PANEL = 16,            /* output channels of a panel (see int8.h) */
    PADDING = 64,          /* inputs are padded to a multiple of this: the bytes of a tile's row */
    TILE_ROWS = 16,        /* quantised activations have memory for a multiple of this many rows */
    LOGIT_PANELS = 32,     /* panels of the vocabulary whose logits are in memory at the same time */
    ENCODER_TOKENS = 128,  /* short sources are encoded together, up to this many tokens */
    MAX_BEAM = 16,
    FEWEST_ON_GRID = 16,   /* weights of a row of which it is no coincidence that they are multiples of one number */
    CHUNK = 320,           /* inputs of a language model's layer that have scales of their own (int8.h) */
    LARGE_GROUPS = 4,      /* groups of four activations of a chunk that have 16 bits */
    FEW_ROWS = 2,          /* tokens up to which every worker has buffers of its own (see language_model.h) */
    BOS = 2, EOS = 3,      /* the ids below EOS are markers that no output contains */
    ANY = -1, ANY_BUT_END = -2, /* in Job.forced: no token is forced; with the second, the output may not end yet */
};

/* Activations of the feed-forward network; in the last two, the first half of the inputs is the gate. */
typedef enum { RELU, GELU, GELU_TANH, SWISH, GEGLU, SWIGLU } Activation;

/* Types of stored numbers. */
typedef enum { F32, F64, F16, BF16 } Real;

typedef struct {
    int32_t width_in, padded_in, width_out, panels;
    const int8_t *weight;
    const float *scale, *bias; /* [panels * PANEL]; in language models, scale[chunk][panels * PANEL] */
    const int32_t *start;      /* [panels * PANEL]: what sums start with, since activations have ZERO_POINT added */
} Linear;

/* The activations of one row in a chunk, without their low bytes. */
typedef struct {
    int8_t high[LARGE_GROUPS][4]; /* the high bytes of the large groups */
    float scale;
    int32_t start;                /* what sums start with, since weights have ZERO_POINT added */
    int32_t offset[LARGE_GROUPS]; /* of the weights of the large groups in a panel */
} Chunk;

typedef struct { int32_t width; float epsilon; const float *gain, *shift; } Norm; /* without a shift, RMSNorm */

typedef struct {
    Linear qkv, out, q, kv, cross_out, inner, outer; /* of an SSRU, qkv computes its input and its gate; out is not used */
    Norm norms[3]; /* of self-attention or SSRU, cross-attention (decoder only) and feed-forward */
} Layer;

/* What a token becomes before the first layer. */
typedef struct {
    const float *positions; /* the table of positional encodings */
    Norm norm;              /* without a gain, it is not applied */
    Linear embedding;
} Input;

typedef struct {
    int32_t vocabulary, width, heads, d_k, d_v, encoder_layers, decoder_layers, norm_first, activation, ssru;
    int32_t alignment_layer; /* the decoder layer whose cross-attention aligns */
    int32_t start;           /* the token that outputs start after */
    float embedding_scale;
    const Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm; /* used if norm_first */
    Input source, target;
    Linear projection; /* in the paper also the embedding of both: they share one matrix (section 3.4) */
} Model;

/* Some tokens of the vocabulary, ascending, and the rows of the projection for them. */
typedef struct { const int32_t *tokens; Linear projection; } Shortlist;

/* One sentence and its hypotheses. */
typedef struct {
    int32_t beam;
    int32_t positions;          /* target positions there is memory for: limit + 1 */
    int32_t source_length;      /* with the end marker */
    int32_t limit;              /* maximum number of output tokens, those of `begin` included */
    int32_t begin;              /* number of first tokens that are forced and count neither in scores nor in lengths */
    int32_t nbest;              /* number of hypotheses to find */
    float alpha;                /* exponent of the length penalty */
    int32_t position;           /* current target position: the number of tokens generated */
    int32_t finished_count, done;
    int32_t first_symbol, symbols; /* the tokens from first_symbol on that only occur if they are missing, and then once */
    int32_t half;               /* whether the KV caches have bfloat16 instead of floats */
    void *self_kv, *cross_kv;   /* KV caches: [layer][beam][position][keys, values], [layer][cross_size] */
    float *states;              /* of SSRUs, instead of self_kv: [layer][even or odd position][beam][width] */
    uint8_t *ancestor;          /* [beam][position]: the row that holds a hypothesis's keys, values and token */
    int32_t *tokens;            /* [beam][position] */
    uint32_t *missing;          /* [beam]: the symbols that the output still lacks, from the lowest bit on */
    int32_t *forced;            /* [position]: the only token allowed there, ANY or ANY_BUT_END */
    const Shortlist *common;    /* the tokens that outputs may have, with `own`, which `encode` fills; NULL: all tokens */
    Shortlist own;
    float *head_attention;      /* [head][source]: the attention weights of the layer that aligns, at the current position.
                                 * This and the next three are NULL except in forced decoding, with a beam of 1. */
    float *attention;           /* [position][source]: the means over the heads */
    float *token_log_prob, *entropy; /* [position]: of the token there, and of the distribution over the vocabulary */
    float *log_prob;            /* [beam]: of the unfinished hypotheses; -INFINITY if there are fewer */
    int32_t *finished_tokens;   /* [beam][position] */
    int32_t *finished_length;   /* [beam], as are the next two */
    float *finished_log_prob, *finished_score;
} Job;

/* One row of a batch in a step: hypothesis `hypothesis` of a job. */
typedef struct { Job *job; int32_t hypothesis; } Row;

typedef struct { float log_prob; int32_t token; } Candidate;

/* The rows that are computed together, and the buffers for them. */
typedef struct {
    int32_t count;              /* rows */
    int32_t parts;              /* 8-bit integers that an activation is rounded to: 1 or 2 (see int8.h) */
    int32_t scratch_size;       /* with an encoder, that of the function of this name; otherwise, the widest row or longest text */
    Row *row;                   /* [count]; in a step only */
    float *x;                   /* [count][width]: the residual stream */
    float *y, *wide;            /* [count][...]: outputs of linear layers and of attention */
    void *quantised;            /* [count][parts][padded_in]: inputs of the next linear layer, of type Integer */
    float *scale;               /* [count][parts]: scales of `quantised` */
    Chunk *chunks;              /* in language models, instead of parts and scales: [chunk][count] */
    float *scratch;             /* [thread][scratch_size]: keys, values and scores of attention, or a row after its norm */
    float *logits;              /* [thread][count][LOGIT_PANELS * PANEL] */
    float *max_logit, *exp_sum; /* [thread][count]: softmax over the tokens that a thread has seen */
    float *logit_sum;           /* [thread][count]: the sum of logits - max_logit, weighted by the terms of exp_sum, in
                                 * forced decoding */
    Candidate *candidates;      /* [thread][count][2 * the largest beam] */
} Batch;

/* A decoder-only model. Of its layers, the parts of cross-attention are not used. */
typedef struct {
    int32_t vocabulary, width, heads, kv_heads, d_k, d_v, layers, norm_first;
    int32_t activation, inner_width; /* an Activation; the width of its output */
    float embedding_scale;
    const float *positions;          /* [position][width]: the table of positional encodings, or NULL */
    const float *rotations;          /* [position][d_k]: cosines, then sines of rotary positions, or NULL */
    const Layer *layer;
    Norm embedding_norm, final_norm; /* without a gain, the first is not applied; the second is used if norm_first */
    Linear embedding, projection;    /* the same weights if they are tied */
} LanguageModel;

/* The KV cache of one text: [layer][kv_head][capacity][d_k or d_v]. */
typedef struct { float *keys, *values; int32_t capacity; } Sequence;

/* A token to process: a row of a batch. */
typedef struct { const Sequence *sequence; int32_t token, position; } Token;

#ifdef __wasm__
/* The numbers of one forward pass, for the pages that `export --to web` writes. In arrays, [source] and [target] are rows for tokens. */
typedef struct {
    int32_t source_length, target_length;
    const int32_t *source, *target;       /* what the encoder and the decoder read: with the end marker, with the start marker */
    float *encoder_qkv, *decoder_qkv;     /* [layer][source or target][queries, keys, values of all heads] */
    float *cross_q, *cross_kv;            /* [layer][target][queries], [layer][source][keys, values] */
    float *encoder, *decoder, *cross;     /* attention weights [layer][head][query][key]; after a query's position, zeros */
    float *hidden;                        /* [decoder layer][target][width]: what the projection reads if this layer is the last */
    float *x, *y, *normed, *wide;         /* [the longer of source and target][...] */
    float *row;                           /* the widest input of a layer */
} Observation;
#endif

/* For a structure: its name, 0 and its size; then the name, offset and size of each field. For a constant: name, value, 0. */
typedef struct { const char *name; int32_t offset, size; } Entry;

#define NAME(type) NAME_(type)
#define NAME_(type) #type
#define STRUCT {NAME(T), 0, sizeof(T)}
#define F(field) {NAME(T) "." #field, offsetof(T, field), sizeof(((T *)0)->field)}
#define CONSTANT(name) {#name, name, 0}
static const Entry entries[] = {
#define T Linear
    STRUCT, F(width_in), F(padded_in), F(width_out), F(panels), F(weight), F(scale), F(bias), F(start),
#undef T
#define T Chunk
    STRUCT, F(high), F(scale), F(start), F(offset),
#undef T
#define T Norm
    STRUCT, F(width), F(epsilon), F(gain), F(shift),
#undef T
#define T Layer
    STRUCT, F(qkv), F(out), F(q), F(kv), F(cross_out), F(inner), F(outer), F(norms),
#undef T
#define T Model
    STRUCT, F(vocabulary), F(width), F(heads), F(d_k), F(d_v), F(encoder_layers), F(decoder_layers), F(norm_first),
    F(activation), F(ssru), F(alignment_layer), F(start), F(embedding_scale), F(encoder), F(decoder), F(encoder_norm), F(decoder_norm),
    F(source), F(target), F(projection),
#undef T
#define T Input
    STRUCT, F(positions), F(norm), F(embedding),
#undef T
#define T Shortlist
    STRUCT, F(tokens), F(projection),
#undef T
#define T Job
    STRUCT, F(beam), F(positions), F(source_length), F(limit), F(begin), F(nbest), F(alpha), F(position), F(finished_count), F(done),
    F(first_symbol), F(symbols), F(half),
    F(self_kv), F(cross_kv), F(states), F(ancestor), F(tokens), F(missing), F(forced), F(common), F(own), F(head_attention),
    F(attention), F(token_log_prob), F(entropy), F(log_prob), F(finished_tokens), F(finished_length), F(finished_log_prob),
    F(finished_score),
#undef T
#define T Row
    STRUCT, F(job), F(hypothesis),
#undef T
#define T Candidate
    STRUCT, F(log_prob), F(token),
#undef T
#define T Batch
    STRUCT, F(count), F(parts), F(scratch_size), F(row), F(x), F(y), F(wide), F(quantised), F(scale), F(chunks), F(scratch),
    F(logits), F(max_logit), F(exp_sum), F(logit_sum), F(candidates),
#undef T
#define T LanguageModel
    STRUCT, F(vocabulary), F(width), F(heads), F(kv_heads), F(d_k), F(d_v), F(layers), F(norm_first), F(activation),
    F(inner_width), F(embedding_scale), F(positions), F(rotations), F(layer), F(embedding_norm), F(final_norm),
    F(embedding), F(projection),
#undef T
#define T Sequence
    STRUCT, F(keys), F(values), F(capacity),
#undef T
#define T Token
    STRUCT, F(sequence), F(token), F(position),
#undef T
#ifdef __wasm__
#define T Observation
    STRUCT, F(source_length), F(target_length), F(source), F(target), F(encoder_qkv), F(decoder_qkv), F(cross_q), F(cross_kv),
    F(encoder), F(decoder), F(cross), F(hidden), F(x), F(y), F(normed), F(wide), F(row),
#undef T
#endif
    CONSTANT(F32), CONSTANT(F64), CONSTANT(F16), CONSTANT(BF16),
    CONSTANT(RELU), CONSTANT(GELU), CONSTANT(GELU_TANH), CONSTANT(SWISH), CONSTANT(GEGLU), CONSTANT(SWIGLU),
    CONSTANT(PANEL), CONSTANT(PADDING), CONSTANT(TILE_ROWS), CONSTANT(LOGIT_PANELS), CONSTANT(ENCODER_TOKENS),
    CONSTANT(MAX_BEAM), CONSTANT(FEWEST_ON_GRID), CONSTANT(CHUNK), CONSTANT(LARGE_GROUPS), CONSTANT(FEW_ROWS),
    CONSTANT(BOS), CONSTANT(EOS), CONSTANT(ANY), CONSTANT(ANY_BUT_END),
    {NULL, 0, 0},
};
#undef F

const Entry *EXPORT(layout)(void) { return entries; }
