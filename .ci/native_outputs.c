/* Prints the outputs of small random models in the native engine, greedy search and beam search of several batches, a
 * language model and the vectors of an encoder, so that builds for different instruction sets can be compared: see emulate_x86.
 */
#include <stdio.h>

#include "../src/transduce/fast/native/decoder.c"

enum { WIDTH = 96, HEADS = 3, INNER = 200, VOCABULARY = 1003, LAYERS = 2, LENGTH = 24, MOST_JOBS = 33, ROWS = 256 };

static uint32_t state = 1;

static int draw(int n) {
    state = state * 1664525u + 1013904223u;
    return (int)((uint64_t)state * n >> 32);
}

static float draw_float(void) { return (draw(1 << 20) - (1 << 19)) / (float)(1 << 19); }

static void *allocate(size_t size) {
    void *memory = calloc(1, size + 64);
    if (!memory) abort();
    return memory;
}

static float *draw_floats(int n, float scale, float mean) {
    float *x = allocate(n * sizeof(float));
    for (int i = 0; i < n; i++) x[i] = mean + scale * draw_float();
    return x;
}

static Linear draw_linear(int width_out, int width_in, float scale) {
    int panels = (width_out + PANEL - 1) / PANEL, padded_in = (width_in + PADDING - 1) / PADDING * PADDING;
    int8_t *packed = allocate((size_t)panels * PANEL * padded_in), *row = allocate(padded_in);
    float *scales = allocate(panels * PANEL * sizeof(float)), *bias = draw_floats(panels * PANEL, 0.1f, 0);
    int32_t *start = allocate(panels * PANEL * sizeof(int32_t));
    float *weight = draw_floats(width_out * width_in, scale, 0);
    EXPORT(pack_weights)(weight, width_out, width_in, padded_in, row, packed, scales, start);
    free(weight), free(row);
    return (Linear){width_in, padded_in, width_out, panels, packed, scales, bias, start};
}

static Norm draw_norm(void) { return (Norm){WIDTH, 1e-6f, draw_floats(WIDTH, 0.3f, 1), draw_floats(WIDTH, 0.3f, 0)}; }

static Layer *draw_layers(int qkv, int inner) {
    Layer *layers = allocate(LAYERS * sizeof(Layer));
    for (int l = 0; l < LAYERS; l++) {
        layers[l].qkv = draw_linear(qkv, WIDTH, 0.2f), layers[l].out = draw_linear(WIDTH, WIDTH, 0.2f);
        layers[l].q = draw_linear(WIDTH, WIDTH, 0.2f), layers[l].kv = draw_linear(2 * WIDTH, WIDTH, 0.2f);
        layers[l].cross_out = draw_linear(WIDTH, WIDTH, 0.2f);
        layers[l].inner = draw_linear(inner, WIDTH, 0.2f), layers[l].outer = draw_linear(WIDTH, INNER, 0.2f);
        for (int n = 0; n < 3; n++) layers[l].norms[n] = draw_norm();
    }
    return layers;
}

static Batch allocate_batch(int threads, int parts) {
    Batch batch = {.parts = parts, .scratch_size = INNER + PADDING};
    batch.row = allocate(ROWS * sizeof(Row));
    batch.x = allocate(threads * ROWS * WIDTH * sizeof(float));
    batch.y = allocate(ROWS * WIDTH * sizeof(float)), batch.wide = allocate(ROWS * 4 * INNER * sizeof(float));
    batch.quantised = allocate((size_t)threads * ROWS * 4 * INNER), batch.scale = allocate(3 * threads * ROWS * sizeof(float));
    batch.scratch = allocate(threads * batch.scratch_size * sizeof(float));
    batch.logits = allocate((size_t)threads * ROWS * LOGIT_PANELS * PANEL * sizeof(float));
    batch.max_logit = allocate(threads * ROWS * sizeof(float)), batch.exp_sum = allocate(threads * ROWS * sizeof(float));
    batch.logit_sum = allocate(threads * ROWS * sizeof(float));
    batch.candidates = allocate((size_t)threads * ROWS * 2 * MAX_BEAM * sizeof(Candidate));
    return batch;
}

/* Every sixth token, from this one. */
static Shortlist every_sixth(int first) {
    int count = 0, K = (WIDTH + PADDING - 1) / PADDING * PADDING;
    int32_t *tokens = allocate(VOCABULARY * sizeof(int32_t));
    for (int token = first; token < VOCABULARY; token += 6) tokens[count++] = token;
    int panels = (count + PANEL - 1) / PANEL, channels = panels * PANEL;
    return (Shortlist){tokens, {WIDTH, K, count, panels, allocate((size_t)channels * K), allocate(channels * sizeof(float)),
                                allocate(channels * sizeof(float)), allocate(channels * sizeof(int32_t))}};
}

static Job draw_job(int beam, int source_length) {
    int positions = LENGTH + 1, kv = LAYERS * 2 * WIDTH;
    Job job = {.beam = beam, .positions = positions, .source_length = source_length, .limit = LENGTH, .nbest = beam, .alpha = 0.6f};
    job.self_kv = allocate((size_t)beam * positions * kv * sizeof(float));
    job.cross_kv = allocate((size_t)source_length * kv * sizeof(float));
    job.states = allocate((size_t)2 * beam * LAYERS * WIDTH * sizeof(float));
    job.ancestor = allocate(beam * positions), job.tokens = allocate(beam * positions * sizeof(int32_t));
    job.missing = allocate(beam * sizeof(uint32_t));
    job.forced = allocate(positions * sizeof(int32_t)), job.log_prob = allocate(beam * sizeof(float));
    job.finished_tokens = allocate(beam * positions * sizeof(int32_t));
    job.finished_length = allocate(beam * sizeof(int32_t)), job.finished_log_prob = allocate(beam * sizeof(float));
    job.finished_score = allocate(beam * sizeof(float));
    for (int p = 0; p < positions; p++) job.forced[p] = p < LENGTH ? p < 4 ? ANY_BUT_END : ANY : EOS;
    for (int w = 1; w < beam; w++) job.log_prob[w] = -INFINITY;
    return job;
}

static void translate(const Model *model, int count, int beam, int threads) {
    Job jobs[MOST_JOBS], *pointers[MOST_JOBS];
    int32_t tokens[MOST_JOBS * LENGTH] = {0}, offsets[MOST_JOBS + 1] = {0};
    Batch batch = allocate_batch(threads, model->ssru ? 2 : 1);
    Shortlist common = every_sixth(EOS + 3);
    EXPORT(pack_shortlist)(model, &common);
    state = 7;
    for (int j = 0; j < count; j++) {
        int length = 2 + draw(LENGTH - 2);
        offsets[j + 1] = offsets[j] + length;
        for (int i = offsets[j]; i < offsets[j + 1]; i++) tokens[i] = i + 1 < offsets[j + 1] ? 4 + draw(VOCABULARY - 4) : EOS;
        jobs[j] = draw_job(beam, length), pointers[j] = &jobs[j];
        if (j % 6 == 0 || j % 6 == 4) jobs[j].common = &common, jobs[j].own = every_sixth(EOS);
    }
    EXPORT(encode)(model, pointers, count, tokens, offsets, &batch, threads);
    for (int active = count; active;) {
        EXPORT(step)(model, pointers, active, &batch, threads);
        int kept = 0;
        for (int j = 0; j < active; j++)
            if (!pointers[j]->done) pointers[kept++] = pointers[j];
        active = kept;
    }
    for (int j = 0; j < count; j++)
        for (int w = 0; w < jobs[j].finished_count; w++) {
            printf("norm_first %d, ssru %d, beam %d, sentence %d: %.5f", model->norm_first, model->ssru, beam, j,
                   jobs[j].finished_score[w]);
            for (int p = 0; p < jobs[j].finished_length[w]; p++) printf(" %d", jobs[j].finished_tokens[w * jobs[j].positions + p]);
            printf("\n");
        }
}

static void generate(const LanguageModel *model, int count, int threads) {
    Sequence texts[MOST_JOBS];
    Token tokens[MOST_JOBS];
    Candidate best[MOST_JOBS];
    float *logits = allocate((size_t)MOST_JOBS * VOCABULARY * sizeof(float));
    Batch batch = allocate_batch(threads, 2);
    state = 7;
    for (int j = 0; j < count; j++) {
        size_t size = (size_t)LAYERS * LENGTH * WIDTH * sizeof(float);
        texts[j] = (Sequence){allocate(size), allocate(size), LENGTH};
        tokens[j] = (Token){&texts[j], 4 + draw(VOCABULARY - 4), 0};
    }
    for (int t = 0; t < LENGTH; t++) {
        EXPORT(process_tokens)(model, tokens, count, &batch, logits, best, threads);
        for (int j = 0; j < count; j++) {
            printf("activation %d, text %d, token %d: %.5f %d\n", model->activation, j, t, best[j].log_prob, best[j].token);
            tokens[j].token = best[j].token, tokens[j].position = t + 1;
        }
    }
}

/* The vectors of texts, of which a weighted mean is printed, and the dimension in which the vector of the first token is largest. */
static void read_texts(const Model *model, int count, int threads) {
    int32_t tokens[MOST_JOBS * LENGTH] = {0}, offsets[MOST_JOBS + 1] = {0};
    Batch batch = allocate_batch(threads, 2);
    Layer *rest = draw_layers(3 * WIDTH, INNER);
    for (int l = 0; l < LAYERS; l++) {
        Linear *parts[] = {&rest[l].qkv, &rest[l].out, &rest[l].inner, &rest[l].outer};
        for (int i = 0; i < 4; i++) { /* rests are small and have no bias */
            for (int n = 0; n < parts[i]->width_out; n++) ((float *)parts[i]->scale)[n] /= 254;
            memset((float *)parts[i]->bias, 0, parts[i]->panels * PANEL * sizeof(float));
        }
    }
    const float *embedding = draw_floats(VOCABULARY * WIDTH, 0.3f, 0);
    for (int j = 0; j < count; j++) {
        offsets[j + 1] = offsets[j] + 2 + draw(LENGTH - 2);
        for (int i = offsets[j]; i < offsets[j + 1]; i++) tokens[i] = 4 + draw(VOCABULARY - 4);
    }
    float *vectors = allocate((size_t)MOST_JOBS * LENGTH * WIDTH * sizeof(float));
    EXPORT(encode_texts)(model, rest, embedding, tokens, offsets, count, &batch, vectors, threads);
    for (int j = 0; j < count; j++) {
        const float *x = vectors + (size_t)offsets[j] * WIDTH;
        int largest = 0, size = (offsets[j + 1] - offsets[j]) * WIDTH;
        float sum = 0;
        for (int i = 0; i < size; i++) sum += x[i] * (float)(i % 7);
        for (int d = 0; d < WIDTH; d++) largest = x[d] > x[largest] ? d : largest;
        printf("norm_first %d, vectors %d: %.5f %d\n", model->norm_first, j, sum / size, largest);
    }
}

/* Batches of this many sentences on this many threads; outputs depend on neither. */
int main(int count, char **arguments) {
    if (count != 3) return fprintf(stderr, "usage: native_outputs SENTENCES THREADS\n"), 2;
    int sentences = atoi(arguments[1]), threads = atoi(arguments[2]);
    if (sentences < 1 || sentences > MOST_JOBS) return 2;
    fprintf(stderr, "%s\n", EXPORT(instructions)());
    for (int kind = 0; kind < 3; kind++) {
        int norm_first = kind == 1, ssru = kind == 2;
        state = 1 + kind;
        Model model = {.vocabulary = VOCABULARY, .width = WIDTH, .heads = HEADS, .d_k = WIDTH / HEADS, .d_v = WIDTH / HEADS,
                       .encoder_layers = LAYERS, .decoder_layers = LAYERS, .norm_first = norm_first,
                       .activation = norm_first ? SWISH : RELU, .ssru = ssru, .start = BOS, .embedding_scale = 1};
        const float *positions = draw_floats((LENGTH + 1) * WIDTH, 4, 0);
        model.projection = draw_linear(VOCABULARY, WIDTH, 0.3f);
        model.source = model.target = (Input){.positions = positions, .embedding = model.projection};
        model.encoder = draw_layers(3 * WIDTH, INNER), model.decoder = draw_layers((ssru ? 2 : 3) * WIDTH, INNER);
        model.encoder_norm = draw_norm(), model.decoder_norm = draw_norm();
        translate(&model, sentences, 1, threads);
        translate(&model, sentences, 4, threads);
        if (!ssru) read_texts(&model, sentences, threads);
    }
    for (Activation activation = RELU; activation <= SWIGLU; activation++) {
        state = 5 + activation;
        LanguageModel model = {.vocabulary = VOCABULARY, .width = WIDTH, .heads = HEADS, .kv_heads = HEADS, .d_k = WIDTH / HEADS,
                               .d_v = WIDTH / HEADS, .layers = LAYERS, .norm_first = 1, .activation = activation,
                               .inner_width = INNER, .embedding_scale = 1};
        model.rotations = draw_floats((LENGTH + 1) * WIDTH, 1, 0);
        model.layer = draw_layers(3 * WIDTH, activation >= GEGLU ? 2 * INNER : INNER);
        model.final_norm = draw_norm(), model.embedding = model.projection = draw_linear(VOCABULARY, WIDTH, 0.3f);
        generate(&model, sentences, threads);
    }
    return 0;
}
