// Beam search and forced decoding: sentences are decoded together, and those that finish are replaced by waiting ones.

import { EngineError } from "./wasm.js";

const MOST_ROWS = 32; // hypotheses in a batch: more take more memory, and are not faster here
const BATCH_TOKENS = 8192; // source tokens times the beam in a batch
export const [BOS, EOS] = [2, 3];

/** Activations are rounded to one 8-bit integer or, where more precision is needed, to two. */
const partsOf = ({ settings }, reads) => (reads || settings.decoder_cell === "ssru" ? 2 : 1);

/** A sentence that is being decoded: one block of the engine's memory, with the structure and its arrays. */
class ActiveJob {
  constructor(engine, job, reads) {
    const { library, settings } = engine;
    const { beam, limit } = job;
    const [positions, sourceLength] = [limit + 1, job.tokens.length + 1];
    const { num_heads: heads, d_k, d_v, decoder_layers } = settings;
    const kv = heads * (d_k + d_v) * decoder_layers;
    const ssru = settings.decoder_cell === "ssru";
    const half = partsOf(engine, reads) === 1; // 16 bits for each number of the caches
    const cross = decoder_layers * library.call.cross_size(heads, d_k, d_v, sourceLength, beam);
    const sizes = {
      self_kv: ssru ? 0 : Math.ceil((beam * positions * kv) / (half ? 2 : 1)), cross_kv: Math.ceil(cross / (half ? 2 : 1)), states: ssru ? 2 * beam * settings.d_model * settings.decoder_layers : 0,
      ancestor: Math.ceil((beam * positions) / 4), tokens: beam * positions, missing: beam, forced: positions, log_prob: beam,
      finished_tokens: beam * positions, finished_length: beam, finished_log_prob: beam, finished_score: beam,
      ...(reads && { head_attention: settings.num_heads * sourceLength, attention: positions * sourceLength, token_log_prob: positions, entropy: positions }),
    };
    const words = Object.values(sizes).reduce((sum, size) => sum + size, 0);
    Object.assign(this, { library, job, positions, sourceLength, beam });
    this.address = library.allocate(library.of("Job") + 4 * words);
    this.arrays = {};
    let at = this.address + library.of("Job");
    for (const [name, size] of Object.entries(sizes)) {
      this.arrays[name] = at;
      at += 4 * size;
    }
    library.write("Job", this.address, {
      beam, positions, source_length: sourceLength, limit, nbest: job.nbest, alpha: job.length_penalty,
      first_symbol: job.reserved?.first ?? 0, symbols: job.reserved?.count ?? 0, half: Number(half), ...this.arrays,
    });
    const least = Math.min(job.min_length, positions);
    const forced = library.ints(this.arrays.forced, positions);
    forced.fill(library.constant("ANY")).fill(library.constant("ANY_BUT_END"), 0, least);
    forced.set(job.prefix);
    forced[limit] = EOS;
    library.ints(this.arrays.missing, beam).fill(job.missing ?? 0);
    library.floats(this.arrays.log_prob, beam).fill(-Infinity, 1);
    library.floats(this.arrays.finished_score, beam).fill(-Infinity);
    if (!reads) return;
    library.floats(this.arrays.attention, positions * sourceLength).fill(1 / sourceLength);
    library.floats(this.arrays.token_log_prob, positions).fill(-Infinity);
  }

  get done() {
    return this.library.read("Job", this.address, "done") !== 0;
  }

  /** The best outputs, each {tokens, score, logProb}. */
  hypotheses() {
    const { library, arrays, beam, positions } = this;
    const count = library.read("Job", this.address, "finished_count");
    const [scores, logProbs] = [library.floats(arrays.finished_score, beam), library.floats(arrays.finished_log_prob, beam)];
    const lengths = library.ints(arrays.finished_length, beam);
    const order = [...Array(count).keys()].sort((a, b) => scores[b] - scores[a]).slice(0, this.job.nbest);
    return order.map((i) => ({
      tokens: [...library.ints(arrays.finished_tokens + 4 * i * positions, lengths[i])], score: scores[i], logProb: logProbs[i],
    }));
  }

  /** What the model predicts at the tokens of an output and at its end: log-probabilities, entropies and attention (target, source). */
  reading() {
    const { library, arrays, positions, sourceLength } = this;
    const attention = library.floats(arrays.attention, positions * sourceLength).slice();
    return {
      logProbs: [...library.floats(arrays.token_log_prob, positions)], entropies: [...library.floats(arrays.entropy, positions)],
      attention: Array.from({ length: positions }, (_, t) => attention.subarray(t * sourceLength, (t + 1) * sourceLength)),
    };
  }

  release() {
    this.library.free(this.address);
  }
}

export class Engine {
  constructor(library, weights) {
    Object.assign(this, { library, weights, settings: weights.settings });
  }

  /** Searches for the outputs of jobs: yields [index, hypotheses] of each that finishes, and undefined after other steps. `onStep` gets the extensions of a single job. */
  *search(jobs, options, onStep) {
    const longest = this.settings.longest ?? Infinity;
    const complete = jobs.map((job, index) => {
      const all = { ...options, prefix: [], ...job, index };
      const limit = Math.max(Math.min(all.tokens.length + all.max_extra, all.max_length ?? Infinity, longest), all.prefix.length);
      return { ...all, limit };
    });
    complete.sort((a, b) => b.tokens.length - a.tokens.length);
    for (const active of this.#run(complete, false, onStep)) yield active && [active.job.index, active.hypotheses()];
  }

  /** Reads outputs by forced decoding: yields [index, reading] of each pair of {tokens, output}. */
  *read(pairs) {
    const jobs = pairs.map(({ tokens, output }, index) => ({
      index, tokens, prefix: output, limit: output.length, beam: 1, nbest: 1, length_penalty: 0.6, min_length: 1,
    }));
    for (const active of this.#run(jobs, true)) yield active && [active.job.index, active.reading()];
  }

  /** Searches for the outputs of one job, as {best, tree}: the nodes of the tree are {parent, token, logProb, outcome}, in the order of the steps. */
  trace(job, options) {
    const tree = [{ parent: 0, token: BOS, logProb: 0, outcome: "kept" }];
    let nodes = [0]; // of the hypotheses in the beam
    const onStep = (extensions) => {
      const kept = [];
      for (const { row, token, logProb } of extensions) {
        const outcome = token === EOS ? "finished" : kept.length < options.beam ? "kept" : "pruned";
        if (outcome === "kept") kept.push(tree.length);
        tree.push({ parent: nodes[row], token, logProb, outcome });
      }
      nodes = kept;
    };
    const [[, [best]]] = [...this.search([job], { ...options, nbest: options.beam }, onStep)].filter(Boolean);
    if (!best) throw new EngineError("no output starts with these tokens, or the model's scores are not finite numbers");
    return { best, tree };
  }

  *#run(jobs, reads, onStep) {
    const session = new Session(this, jobs, reads, onStep);
    try {
      while (session.busy) {
        const done = session.advance();
        if (!done.length) yield undefined;
        for (const active of done) {
          yield active;
          active.release();
        }
      }
    } finally {
      session.release();
    }
  }
}

class Session {
  constructor(engine, jobs, reads, onStep) {
    Object.assign(this, { engine, library: engine.library, reads, onStep, active: [], buffers: null, pointers: 0, reserved: [0, 0], waiting: jobs.slice().reverse() });
  }

  get busy() {
    return this.waiting.length + this.active.length > 0;
  }

  /** Take a step; returns the jobs that finished. */
  advance() {
    const jobs = this.#nextJobs();
    if (jobs.length) this.#start(jobs);
    const [traced] = this.active;
    const before = this.onStep && this.library.floats(traced.arrays.log_prob, traced.beam).slice();
    this.library.call.step(this.engine.weights.address, this.pointers, this.active.length, this.batch, 1);
    this.onStep?.(this.#extensions(traced.beam, before));
    const done = this.active.filter((active) => active.done);
    if (done.length) this.#setActive(this.active.filter((active) => !done.includes(active)));
    return done;
  }

  release() {
    for (const active of this.active) active.release();
    this.active = [];
    if (this.buffers) this.library.free(this.buffers);
    if (this.pointers) this.library.free(this.pointers);
    this.buffers = this.pointers = 0;
  }

  /** The best extensions of a job's hypotheses in the last step, each {row, token, logProb}, as `extend` in search.h finds them. */
  #extensions(beam, before) {
    const { library, batch } = this;
    const count = beam > 1 ? 2 * beam : 1;
    const rows = [...before.keys()].filter((row) => before[row] > -Infinity);
    const [candidates, highest, sums] = ["candidates", "max_logit", "exp_sum"].map((name) => library.read("Batch", batch, name));
    const found = rows.flatMap((row, n) => {
      const [[max], [sum]] = [library.floats(highest + 4 * n, 1), library.floats(sums + 4 * n, 1)];
      const base = Math.fround(Math.fround(before[row] - max) - Math.fround(Math.log(sum)));
      return Array.from({ length: count }, (_, c) => {
        const address = candidates + (n * count + c) * library.of("Candidate");
        return { row, token: library.read("Candidate", address, "token"), logProb: Math.fround(library.floats(address, 1)[0] + base) };
      });
    });
    return found.filter(({ logProb }) => logProb > -Infinity).sort((a, b) => b.logProb - a.logProb).slice(0, count);
  }

  /** Waiting jobs that fit into the batch, once there is room for an eighth of it. */
  #nextJobs() {
    let rows = this.active.reduce((sum, { beam }) => sum + beam, 0);
    let tokens = this.active.reduce((sum, { beam, sourceLength }) => sum + beam * sourceLength, 0);
    let encoded = 0;
    const jobs = [];
    if (rows > MOST_ROWS - MOST_ROWS / 8) return jobs;
    while (this.waiting.length) {
      const { beam, tokens: source } = this.waiting.at(-1);
      [rows, tokens, encoded] = [rows + beam, tokens + beam * (source.length + 1), encoded + source.length + 1];
      const full = rows > MOST_ROWS || tokens > BATCH_TOKENS;
      if ((full && (jobs.length || this.active.length)) || (jobs.length && encoded > this.library.constant("ENCODER_TOKENS"))) break;
      jobs.push(this.waiting.pop());
    }
    return jobs;
  }

  #start(jobs) {
    const { library, engine } = this;
    const lengths = jobs.map(({ tokens }) => tokens.length + 1);
    const longest = Math.max(...lengths, ...jobs.map(({ limit }) => limit + 1));
    engine.weights.requirePositions(longest);
    const tokens = jobs.flatMap(({ tokens }) => [...tokens, EOS]);
    if (!tokens.every((token) => token >= 0 && token < engine.weights.sourceVocabulary)) throw new EngineError("a token is not in the model's vocabulary");
    const started = jobs.map((job) => new ActiveJob(engine, job, this.reads));
    this.#setActive([...this.active, ...started]);
    this.#reserve(Math.max(library.constant("ENCODER_TOKENS"), ...lengths, this.active.reduce((sum, { beam }) => sum + beam, 0)), longest);
    const offsets = [0];
    for (const length of lengths) offsets.push(offsets.at(-1) + length);
    const numbers = library.allocate(4 * (tokens.length + offsets.length));
    library.ints(numbers, tokens.length + offsets.length).set([...tokens, ...offsets]);
    const first = this.pointers + 4 * (this.active.length - started.length);
    library.call.encode(engine.weights.address, first, started.length, numbers, numbers + 4 * tokens.length, this.batch, 1);
    library.free(numbers);
  }

  #setActive(active) {
    this.active = active;
    if (this.pointers) this.library.free(this.pointers);
    this.pointers = this.library.allocate(4 * active.length);
    this.library.ints(this.pointers, active.length).set(active.map(({ address }) => address));
  }

  /** Allocate the buffers of a batch of this many rows with texts up to this length, unless they are there. */
  #reserve(rows, longest) {
    if (rows <= this.reserved[0] && longest <= this.reserved[1]) return;
    const { library, engine: { settings } } = this;
    const { d_model, d_ff, num_heads: heads, d_k, d_v } = settings;
    this.reserved = [rows, longest] = [Math.max(rows, this.reserved[0]), Math.max(longest, this.reserved[1])];
    const scratch = library.call.scratch_size(d_model, heads, d_k, d_v, longest);
    const width = Math.max(d_model, heads * d_v);
    const parts = partsOf(this.engine, this.reads);
    const wide = Math.max(d_ff, heads * (2 * d_k + d_v), 2 * d_model);
    const quantised = (rows * parts + library.constant("TILE_ROWS")) * (Math.max(wide, width) + library.constant("PADDING"));
    const sizes = {
      row: rows * library.of("Row"), x: 4 * rows * d_model, y: 4 * rows * width, wide: 4 * rows * wide, quantised: Math.ceil(quantised / 16) * 16,
      scale: 4 * rows * parts, scratch: 4 * scratch, logits: 4 * rows * library.constant("LOGIT_PANELS") * library.constant("PANEL"),
      max_logit: 4 * rows, exp_sum: 4 * rows, logit_sum: 4 * rows, candidates: rows * 2 * library.constant("MAX_BEAM") * library.of("Candidate"),
    };
    if (this.buffers) library.free(this.buffers);
    this.batch = this.buffers = library.allocate(library.of("Batch") + Object.values(sizes).reduce((sum, size) => sum + size, 0));
    const fields = { parts, scratch_size: scratch };
    let at = this.batch + library.of("Batch");
    for (const [name, size] of Object.entries(sizes)) {
      fields[name] = at;
      at += size;
    }
    library.write("Batch", this.batch, fields);
  }
}
