// A translation that the user pastes, as the model sees it: probability and rank of each token.

import { signal } from "@preact/signals";
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { askJson } from "./api.js";
import { DataTable, percent } from "./components.js";
import { direction } from "./languages.js";
import { inspection } from "./state.js";
import { pieceLabel, label } from "./tokens.js";

const reference = signal("");

export function Reference() {
  const shown = inspection.value;
  const [tokens, setTokens] = useState(null);
  const [reason, setReason] = useState("");
  useEffect(() => {
    setTokens(null);
    setReason("");
    if (!reference.value.trim()) return;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const body = { text: shown.text, reference: reference.value, ...direction.value };
        const answer = await askJson("inspect/reference", { body, signal: controller.signal });
        setTokens(answer.tokens);
      } catch (failure) {
        if (!controller.signal.aborted) setReason(failure.message);
      }
    }, 300);
    return () => (clearTimeout(timer), controller.abort());
  }, [shown, reference.value]);
  return html`<section id="reference-section" aria-labelledby="reference">
    <h2 id="reference">Another translation</h2>
    <p class="lead">Paste a translation of your own, or a reference: how probable is each of its tokens to the model?</p>
    <textarea class="card" rows="2" aria-label="Another translation of the sentence" dir="auto" value=${reference.value}
      onInput=${(event) => (reference.value = event.target.value)}></textarea>
    ${reason && html`<p class="error" role="alert">${reason}</p>`}
    ${tokens && html`<${Scored} tokens=${tokens} shown=${shown} />`}
  </section>`;
}

function Scored({ tokens, shown }) {
  const apart = tokens.findIndex(({ token }, n) => token !== shown.target[n]);
  const total = tokens.reduce((sum, { log_prob }) => sum + log_prob, 0);
  const better = total > shown.log_prob ? "more probable than" : "less probable than";
  const rows = tokens.map(({ piece, log_prob, rank, best, best_log_prob }, n) =>
    [pieceLabel(piece), percent(Math.exp(log_prob)), rank.toLocaleString("en"), rank === 1 ? "" : `${pieceLabel(best)} ${percent(Math.exp(best_log_prob))}`, n === apart ? "differs from here" : ""]);
  return html`<p class="scored">${tokens.map(({ piece, log_prob, rank }, n) => html`<span class="scored-token ${rank === 1 ? "" : rank <= 5 ? "unsure" : "doubtful"} ${n === apart ? "apart" : ""}"
      title="rank ${rank}, ${percent(Math.exp(log_prob))}">${pieceLabel(piece)}</span>`)}</p>
    <p class="note">${apart < 0 ? "This is the model's own translation." : html`It differs from the model's own translation at token ${apart + 1}:${" "}
      ${pieceLabel(tokens[apart].piece)} instead of ${label(shown, shown.target[apart] ?? 3)}. Its log-probability is ${total.toFixed(2)}, ${better} the model's own (${shown.log_prob.toFixed(2)}).`}</p>
    <${DataTable} title="Another translation" columns=${["token", "probability", "rank", "most probable", "remark"]} rows=${rows} />`;
}
