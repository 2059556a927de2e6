/* The structures and constants that Python shares (`structs.py`), and the table by which it checks its own. */
#include <stddef.h>
#include <stdint.h>

enum {
    PANEL = 16,            /* output channels side by side */
    BLOCK = 32,            /* panels of words whose logits exist at the same time */
    ENCODED_AT_ONCE = 128, /* tokens of short sources */
    MAX_BEAM = 16,
    BOS = 2, EOS = 3,      /* EOS is said; the markers below it never are */
};

typedef struct {
    int32_t width_in, padded_in, width_out, panels;
    const int8_t *weight;
    const float *scale, *bias; /* of every output channel, up to a whole panel */
    const int32_t *sum;        /* of every output channel's weights */
} Linear;

typedef struct { int32_t width; float epsilon; const float *gain, *shift; } Norm;

typedef struct {
    Linear qkv, out, q, kv, cross_out, inner, outer;
    Norm norms[3]; /* around self-attention, cross-attention (decoder) and feed-forward */
} Layer;

typedef struct {
    int32_t vocabulary, width, heads, d_k, d_v, encoder_layers, decoder_layers, norm_first;
    const float *positions;
    const Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm; /* used where the norm comes first */
    Linear projection; /* and embedding: one matrix (section 3.4) */
} Model;

typedef struct { float log_prob; int32_t token; } Candidate;

typedef struct {
    int32_t beam, places, source, limit, position, ended_count, done;
    float *self_kv, *cross_kv;          /* [layer][row][place][keys, values], [layer][place][keys, values] */
    uint8_t *ancestor;                  /* [row][place] */
    int32_t *said, *forced, *ended;     /* [row][place], [place], [row][place] */
    int32_t *ended_length;
    float *alive, *ended_log_prob, *ended_score; /* [row] */
} Job;

typedef struct { Job *job; int32_t row; } Row;

/* Buffers for the rows that are worked on together. */
typedef struct {
    int32_t rows, longest; /* longest: of sources and of places */
    Row *which; /* in a step */
    float *x, *y, *wide, *scale, *logits;
    float *scores; /* [thread][longest] */
    int8_t *q;
    float *top, *total; /* [thread][row]: of the softmax over the words a thread has seen */
    Candidate *best;    /* [thread][row][2 beam] */
} Rows;

/* Structures: the name, 0 and the size, then name, offset and size of every field. Constants: name, value and 0. */
typedef struct { const char *name; int32_t offset, size; } Entry;

#define NAME(type) NAME_(type)
#define NAME_(type) #type
#define STRUCT {NAME(T), 0, sizeof(T)}
#define C(constant) {#constant, constant, 0}
#define F(field) {NAME(T) "." #field, offsetof(T, field), sizeof(((T *)0)->field)}
static const Entry entries[] = {
#define T Linear
    STRUCT, F(width_in), F(padded_in), F(width_out), F(panels), F(weight), F(scale), F(bias), F(sum),
#undef T
#define T Norm
    STRUCT, F(width), F(epsilon), F(gain), F(shift),
#undef T
#define T Layer
    STRUCT, F(qkv), F(out), F(q), F(kv), F(cross_out), F(inner), F(outer), F(norms),
#undef T
#define T Model
    STRUCT, F(vocabulary), F(width), F(heads), F(d_k), F(d_v), F(encoder_layers), F(decoder_layers), F(norm_first),
    F(positions), F(encoder), F(decoder), F(encoder_norm), F(decoder_norm), F(projection),
#undef T
#define T Job
    STRUCT, F(beam), F(places), F(source), F(limit), F(position), F(ended_count), F(done), F(self_kv), F(cross_kv),
    F(ancestor), F(said), F(forced), F(ended), F(ended_length), F(alive), F(ended_log_prob), F(ended_score),
#undef T
#define T Row
    STRUCT, F(job), F(row),
#undef T
#define T Candidate
    STRUCT, F(log_prob), F(token),
#undef T
#define T Rows
    STRUCT, F(rows), F(longest), F(which), F(x), F(y), F(wide), F(scale), F(logits), F(scores), F(q), F(top), F(total),
    F(best),
#undef T
    C(PANEL), C(BLOCK), C(ENCODED_AT_ONCE), C(MAX_BEAM), C(BOS), C(EOS), {NULL, 0, 0},
};
#undef F
#undef C

const Entry *layout(void) { return entries; }
