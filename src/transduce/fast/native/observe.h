/* Forced decoding in float32, with all that a page shows of a translation: in Python, `inspect/inspection.py`. Weights are those
 * of the engine, in 8 bits; activations are not rounded.
 */

/* y = x W^T + b */
void EXPORT(apply_floats)(const Linear *layer, const float *x, int rows, float *row, float *y) {
    int K = layer->width_in;
    for (int n = 0; n < layer->width_out; n++) {
        for (int k = 0; k < K; k++) row[k] = weight_at(layer, n, k) * layer->scale[n];
        for (int r = 0; r < rows; r++) {
            const float *input = x + (size_t)r * K;
            Floats lanes = {0};
            int k = 0;
            for (; k + LANES <= K; k += LANES) lanes += *(const Floats *)(input + k) * *(const Floats *)(row + k);
            float sum = sum_lanes(lanes);
            for (; k < K; k++) sum += input[k] * row[k];
            y[(size_t)r * layer->width_out + n] = sum + layer->bias[n];
        }
    }
}

/* Set the weights of the inputs `first` up to `last` to zero: the output of a head is an input of the layer after attention. */
void EXPORT(zero_inputs)(const Linear *layer, int first, int last) {
    for (int n = 0; n < layer->width_out; n++)
        for (int k = first; k < last; k++) {
            int8_t *weight = (int8_t *)&layer->weight[weight_index(n, k, layer->padded_in)];
            ((int32_t *)layer->start)[n] += ZERO_POINT * *weight;
            *weight = 0;
        }
}

/* What a sub-layer reads: the residual stream, through its norm if that is before it. */
static const float *sublayer_input(const Model *model, const Norm *norm, int rows, const Observation *seen) {
    int D = model->width;
    if (!model->norm_first) return seen->x;
    for (int r = 0; r < rows; r++) normalise(norm, seen->x + (size_t)r * D, seen->normed + (size_t)r * D);
    return seen->normed;
}

/* Apply the last layer of a sub-layer to its numbers, and add the result to the residual stream. */
static void add_output(const Model *model, const Norm *norm, const Linear *last, const float *numbers, int rows, const Observation *seen) {
    int D = model->width;
    EXPORT(apply_floats)(last, numbers, rows, seen->row, seen->y);
    for (size_t i = 0; i < (size_t)rows * D; i++) seen->x[i] += seen->y[i];
    for (int r = 0; r < rows && !model->norm_first; r++) normalise(norm, seen->x + (size_t)r * D, seen->x + (size_t)r * D);
}

/* Attention of all heads: `q` and `kv` are rows of `q_width` and `kv_width` numbers. Outputs are in seen->wide. */
static void attend_heads(const Model *model, const float *q, int q_width, int queries, const float *kv, int kv_width, int keys,
                         int causal, float *weights, const Observation *seen) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v;
    for (int h = 0; h < H; h++) {
        Positions positions = {kv + h * d_k, kv + H * d_k + h * d_v, kv_width, kv_width, 0, NULL, 0};
        for (int t = 0; t < queries; t++)
            attend(q + (size_t)t * q_width + h * d_k, &positions, causal ? t + 1 : keys, 1, d_k, d_v,
                   weights + ((size_t)h * queries + t) * keys, seen->wide + (size_t)t * H * d_v + h * d_v);
    }
}

static void self_attend(const Model *model, const Layer *layer, int rows, int causal, float *qkv, float *weights, const Observation *seen) {
    int width = layer->qkv.width_out;
    EXPORT(apply_floats)(&layer->qkv, sublayer_input(model, &layer->norms[0], rows, seen), rows, seen->row, qkv);
    attend_heads(model, qkv, width, rows, qkv + model->heads * model->d_k, width, rows, causal, weights, seen);
    add_output(model, &layer->norms[0], &layer->out, seen->wide, rows, seen);
}

static void feed_forward(const Model *model, const Layer *layer, int rows, const Observation *seen) {
    EXPORT(apply_floats)(&layer->inner, sublayer_input(model, &layer->norms[2], rows, seen), rows, seen->row, seen->wide);
    activate(model->activation, seen->wide, rows * layer->inner.width_out, seen->wide);
    add_output(model, &layer->norms[2], &layer->outer, seen->wide, rows, seen);
}

/* The forward pass. A decoder with SSRUs, which has no self-attention, is not observed. */
void EXPORT(observe)(const Model *model, const Observation *seen) {
    int D = model->width, S = seen->source_length, T = seen->target_length, H = model->heads;
    for (int s = 0; s < S; s++) embed(model, &model->source, NULL, seen->source[s], s, seen->x + (size_t)s * D);
    for (int l = 0; l < model->encoder_layers; l++) {
        const Layer *layer = &model->encoder[l];
        self_attend(model, layer, S, 0, seen->encoder_qkv + (size_t)l * S * layer->qkv.width_out, seen->encoder + (size_t)l * H * S * S, seen);
        feed_forward(model, layer, S, seen);
    }
    const float *memory = sublayer_input(model, &model->encoder_norm, S, seen);
    for (int l = 0; l < model->decoder_layers; l++) {
        const Linear *kv = &model->decoder[l].kv;
        EXPORT(apply_floats)(kv, memory, S, seen->row, seen->cross_kv + (size_t)l * S * kv->width_out);
    }
    for (int t = 0; t < T; t++) embed(model, &model->target, NULL, seen->target[t], t, seen->x + (size_t)t * D);
    for (int l = 0; l < model->decoder_layers; l++) {
        const Layer *layer = &model->decoder[l];
        int width = layer->q.width_out, kv_width = layer->kv.width_out;
        float *q = seen->cross_q + (size_t)l * T * width;
        self_attend(model, layer, T, 1, seen->decoder_qkv + (size_t)l * T * layer->qkv.width_out, seen->decoder + (size_t)l * H * T * T, seen);
        EXPORT(apply_floats)(&layer->q, sublayer_input(model, &layer->norms[1], T, seen), T, seen->row, q);
        attend_heads(model, q, width, T, seen->cross_kv + (size_t)l * S * kv_width, kv_width, S, 0, seen->cross + (size_t)l * H * T * S, seen);
        add_output(model, &layer->norms[1], &layer->cross_out, seen->wide, T, seen);
        feed_forward(model, layer, T, seen);
        memcpy(seen->hidden + (size_t)l * T * D, sublayer_input(model, &model->decoder_norm, T, seen), (size_t)T * D * sizeof(float));
    }
}
