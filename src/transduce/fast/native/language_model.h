/* Decoder-only language models: in Python, `models/decoder_only.py`.
 *
 * A batch is a list of tokens, each with the text that it belongs to and its position there. The keys and values of all
 * tokens of a batch are in the caches before any of them attends, so prompts (many tokens of each text) and steps (one
 * token of each text) are the same computation.
 */

static void embed_token(const LanguageModel *model, const Token *token, float *x) {
    const Linear *embedding = &model->embedding;
    for (int begin = 0, end; begin < model->width; begin = end) {
        size_t chunk = begin / CHUNK * embedding->panels * PANEL;
        float scale = embedding->scale[chunk + token->token] * model->embedding_scale;
        end = begin + CHUNK < model->width ? begin + CHUNK : model->width;
        for (int d = begin; d < end; d++) x[d] = (int8_t)(weight_at(embedding, token->token, d) - ZERO_POINT) * scale;
    }
    if (model->positions) {
        const float *encoding = model->positions + (size_t)token->position * model->width;
        for (int d = 0; d < model->width; d++) x[d] += encoding[d];
    }
    if (model->embedding_norm.gain) normalise(&model->embedding_norm, x, x);
}

/* Rotate the dimensions i and i + d_k / 2 of x; x and y may be the same. `rotation` has d_k / 2 cosines, then the sines. */
static void rotate(const float *x, const float *rotation, int d_k, float *y) {
    int half = d_k / 2;
    for (int i = 0; i < half; i++) {
        float first = x[i], second = x[half + i], cosine = rotation[i], sine = rotation[half + i];
        y[i] = first * cosine - second * sine;
        y[half + i] = second * cosine + first * sine;
    }
}

static float *keys_of(const LanguageModel *model, const Sequence *sequence, int layer, int kv_head) {
    return sequence->keys + ((size_t)layer * model->kv_heads + kv_head) * sequence->capacity * model->d_k;
}

static float *values_of(const LanguageModel *model, const Sequence *sequence, int layer, int kv_head) {
    return sequence->values + ((size_t)layer * model->kv_heads + kv_head) * sequence->capacity * model->d_v;
}

/* Rotate the queries in batch->wide, and store keys and values of all tokens in their caches. */
static void store_keys(Worker worker, const LanguageModel *model, int layer, const Token *tokens, const Batch *batch) {
    int H = model->heads, G = model->kv_heads, d_k = model->d_k, d_v = model->d_v, first, last;
    split_work(worker, batch->count * (H + G), &first, &last);
    for (int i = first; i < last; i++) {
        const Token *token = tokens + i / (H + G);
        const float *rotation = model->rotations ? model->rotations + (size_t)token->position * d_k : NULL;
        int h = i % (H + G);
        float *qkv = batch->wide + (size_t)(i / (H + G)) * (H * d_k + G * (d_k + d_v)), *x = qkv + h * d_k;
        if (h < H) {
            if (rotation) rotate(x, rotation, d_k, x);
            continue;
        }
        float *key = keys_of(model, token->sequence, layer, h - H) + (size_t)token->position * d_k;
        float *value = values_of(model, token->sequence, layer, h - H) + (size_t)token->position * d_v;
        if (rotation) rotate(x, rotation, d_k, key);
        else memcpy(key, x, d_k * sizeof(float));
        memcpy(value, qkv + (H + G) * d_k + (h - H) * d_v, d_v * sizeof(float));
    }
    barrier(worker);
}

/* Attention of all tokens over the tokens of their texts up to themselves. */
static void causal_attention(Worker worker, const LanguageModel *model, int layer, const Token *tokens, const Batch *batch,
                             float *attended) {
    int H = model->heads, G = model->kv_heads, d_k = model->d_k, d_v = model->d_v, first, last;
    float *scores = scratch_of(worker, batch);
    split_work(worker, batch->count * H, &first, &last);
    for (int i = first; i < last; i++) {
        const Token *token = tokens + i / H;
        const float *q = batch->wide + (size_t)(i / H) * (H * d_k + G * (d_k + d_v)) + i % H * d_k;
        int kv_head = i % H / (H / G);
        Positions positions = {keys_of(model, token->sequence, layer, kv_head),
                               values_of(model, token->sequence, layer, kv_head), d_k, d_v, 0, NULL, 0};
        attend(q, &positions, token->position + 1, 1, d_k, d_v, scores, attended + (size_t)i * d_v);
    }
    barrier(worker);
}

/* Quantise the activations of batch->wide as the input of the feed-forward network's second layer. */
static void quantise_activations(Worker worker, const LanguageModel *model, const Linear *outer, Batch *batch) {
    int width = model->inner_width, wide = model->activation >= GEGLU ? 2 * width : width, first, last;
    float *activated = scratch_of(worker, batch);
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        activate(model->activation, batch->wide + (size_t)r * wide, width, activated);
        quantise_input(activated, r, outer, batch);
    }
    barrier(worker);
}

/* Compute the logits of a part of the vocabulary. Of each row, keep the softmax's maximum and sum and the most
 * likely token that an output may contain.
 */
static void project(Worker part, const LanguageModel *model, const Batch *rows, Batch *batch, float *logits) {
    int first, last, R = rows->count, V = model->vocabulary;
    float *max_logit = batch->max_logit + part.id * R, *exp_sum = batch->exp_sum + part.id * R;
    Candidate *best = batch->candidates + part.id * R;
    for (int r = 0; r < R; r++) max_logit[r] = -INFINITY, exp_sum[r] = 0, best[r] = (Candidate){-INFINITY, EOS};
    split_work(part, model->projection.panels, &first, &last);
    for (int panel = first; panel < last; panel += LOGIT_PANELS) {
        int end = panel + LOGIT_PANELS < last ? panel + LOGIT_PANELS : last, start = panel * PANEL;
        int tokens = (end * PANEL < V ? end * PANEL : V) - start;
        multiply(&model->projection, panel, end, rows, logits + start, V, 0);
        for (int r = 0; r < R; r++) {
            const float *row = logits + (size_t)r * V + start;
            float max = largest_of(row, tokens, max_logit[r], 0), terms[LOGIT_PANELS * PANEL], highest = -INFINITY;
            float sum = exponentials(row, tokens, max, 1, terms);
            exp_sum[r] = sum + (exp_sum[r] > 0 ? exp_sum[r] * exponential(max_logit[r] - max) : 0);
            max_logit[r] = max;
            int lowest = start < EOS ? EOS - start : 0;
            if (lowest < tokens) highest = largest_of(row + lowest, tokens - lowest, -INFINITY, 0);
            if (highest <= best[r].log_prob) continue;
            int i = lowest;
            while (i < tokens - 1 && row[i] != highest) i++;
            best[r] = (Candidate){highest, start + i};
        }
    }
}

/* The most likely token of a row, with its log-probability, from what was found in the parts of the vocabulary. */
static Candidate best_token(const Batch *batch, int parts, int row) {
    Candidate best = {-INFINITY, EOS};
    float max = -INFINITY, total = 0;
    for (int i = row; i < parts * batch->count; i += batch->count) {
        max = fmaxf(max, batch->max_logit[i]);
        if (batch->candidates[i].log_prob > best.log_prob) best = batch->candidates[i];
    }
    for (int i = row; i < parts * batch->count; i += batch->count)
        if (batch->exp_sum[i] > 0) total += batch->exp_sum[i] * expf(batch->max_logit[i] - max);
    best.log_prob -= max + logf(total);
    return best;
}

typedef struct {
    const LanguageModel *model;
    const Token *tokens;
    Batch *batch;
    float *logits;
    Candidate *best;
    int parts;
} TokensCall;

/* All layers. With few rows, the work between two products is too small to share: every worker does all of it in buffers
 * of its own, which saves four of the ten barriers of a layer. What is shared, wide and y, is written in products and in
 * attention, which end in a barrier, and not before all workers have read it.
 */
static void run_tokens(Worker worker, void *arguments) {
    const TokensCall *call = arguments;
    const LanguageModel *model = call->model;
    Batch *batch = call->batch, rows = *batch;
    Worker single = {0, 1}, between = worker;
    int D = model->width, R = batch->count, post = !model->norm_first, first, last;
    if (R <= FEW_ROWS) {
        rows.x += (size_t)worker.id * R * D;
        rows.quantised = (Integer *)rows.quantised + (size_t)worker.id * R * batch->scratch_size;
        rows.chunks += (size_t)worker.id * R * count_chunks(batch->scratch_size);
        rows.scratch = scratch_of(worker, batch);
        between = single;
    }
    float *attended = rows.wide + (size_t)R * (model->heads * model->d_k + model->kv_heads * (model->d_k + model->d_v));
    split_work(between, R, &first, &last);
    for (int r = first; r < last; r++) embed_token(model, call->tokens + r, rows.x + (size_t)r * D);
    barrier(between);
    residual(between, &rows, 0, NULL, post ? NULL : &model->layer[0].norms[0], &model->layer[0].qkv);
    for (int l = 0; l < model->layers; l++) {
        const Layer *layer = &model->layer[l], *next = l + 1 < model->layers ? layer + 1 : NULL;
        linear(worker, &layer->qkv, &rows, rows.wide, 0);
        store_keys(worker, model, l, call->tokens, &rows);
        if (!next && !call->logits) return; /* of a prompt, only keys and values are needed */
        causal_attention(worker, model, l, call->tokens, batch, attended);
        quantise(between, attended, &layer->out, &rows);
        linear(worker, &layer->out, &rows, rows.y, 0);
        residual(between, &rows, 1, post ? &layer->norms[0] : NULL, post ? NULL : &layer->norms[2], &layer->inner);
        linear(worker, &layer->inner, &rows, rows.wide, 0);
        quantise_activations(between, model, &layer->outer, &rows);
        linear(worker, &layer->outer, &rows, rows.y, 0);
        const Norm *before = post ? NULL : next ? &next->norms[0] : &model->final_norm;
        residual(between, &rows, 1, post ? &layer->norms[2] : NULL, before, next ? &next->qkv : &model->projection);
    }
    for (int part = worker.id; part < call->parts; part += worker.count)
        project((Worker){part, call->parts}, model, &rows, batch, call->logits);
    barrier(worker);
    for (int r = worker.id; r < R; r += worker.count) call->best[r] = best_token(batch, call->parts, r);
}

/* Process tokens, whose texts have room for them. If `logits` is not NULL, it gets the logits [count][vocabulary] of the
 * next token of each, and `best` the most likely of these tokens with its log-probability.
 */
void EXPORT(process_tokens)(const LanguageModel *model, const Token *tokens, int count, Batch *batch, float *logits,
                            Candidate *best, int threads) {
    batch->count = count;
    TokensCall call = {model, tokens, batch, logits, best, threads};
    run_parallel(threads, run_tokens, &call);
}
