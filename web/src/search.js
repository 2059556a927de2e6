// Beam search: the tree of all it considered, and the ranking of what it finished.

import { linkHorizontal } from "d3-shape";
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Figure, minus, percent, pointing, shorten, Slider } from "./parts.js";
import { live } from "./source.js";
import { alpha, grown, look, mark, prefix, searched, shownAlpha } from "./state.js";
import { label, spell } from "./tokens.js";

const [COLUMN, ROW, BOX, TALL] = [134, 34, 92, 24];
const FATES = { kept: "kept", pruned: "dropped", finished: "finished" };

export function Search() {
  const found = look.value;
  const nodes = useMemo(() => plant(found), [found]);
  const ranked = useMemo(() => rank(nodes, shownAlpha.value), [nodes, shownAlpha.value]);
  const steps = nodes.at(-1).depth;
  const until = Math.min(grown.value ?? steps, steps);
  return html`<section aria-labelledby="search">
    <h2 id="search">Search</h2>
    <p class="lead">From the left, step by step, every hypothesis is extended by its likeliest tokens; of all extensions the best
      ${" "}${found.beam} live on. ${live ? "Choose one to force it as the beginning, and go on from there."
        : "Forcing a beginning needs the model: open this page with transduce serve."}</p>
    <${Figure} name="search-tree" title="The tree" hint=${html`<${Key} />`} wide>
      <${Tree} nodes=${nodes} winner=${ranked[0]} until=${until} />
    <//>
    <div class="controls under">
      <${Growing} steps=${steps} until=${until} />
    </div>
    <${Ranking} ranked=${ranked} best=${found.target} />
  </section>`;
}

/** The nodes with depth, place in their step, children, and ids so far. */
function plant(found) {
  const { parent, token, log_prob, fate } = found.tree;
  const nodes = [];
  const atDepth = [];
  parent.forEach((from, n) => {
    const above = n ? nodes[from] : null;
    const depth = above ? above.depth + 1 : 0;
    const row = (atDepth[depth] = (atDepth[depth] ?? -1) + 1);
    const node = { n, above, depth, row, token: token[n], logProb: log_prob[n], fate: fate[n], children: [],
      ids: above ? [...above.ids, token[n]] : [] };
    node.probability = Math.exp(node.logProb - (above?.logProb ?? 0));
    above?.children.push(node);
    nodes.push(node);
  });
  return nodes;
}

const scoreOf = (node, alpha) => node.logProb / ((5 + node.depth) / 6) ** alpha;

function rank(nodes, alpha) {
  return nodes
    .filter((node) => node.fate === "finished")
    .map((node) => ({ node, score: scoreOf(node, alpha) }))
    .sort((a, b) => b.score - a.score);
}

function Key() {
  return html`<span class="key">
    ${Object.entries(FATES).map(([fate, word]) => html`<span class="fate ${fate}">${word}</span>`)}
    <span>the bar is a token’s probability</span>
  </span>`;
}

function Tree({ nodes, winner, until }) {
  const [current, setCurrent] = useState(0);
  const [pointed, setPointed] = useState(null);
  const svg = useRef();
  const deepest = Math.max(...nodes.map((node) => node.depth));
  const rows = 1 + Math.max(...nodes.map((node) => node.row));
  const width = deepest * COLUMN + BOX + 16;
  const x = (node) => 8 + node.depth * COLUMN;
  const y = (node) => 8 + node.row * ROW + TALL / 2;
  const line = linkHorizontal();
  const winning = new Set(lineage(winner.node));
  const lit = new Set(pointed ? lineage(pointed) : []);
  const marked = mark.value.looks?.side === "target" ? mark.value.looks.place + 1 : null;
  const isMarked = (node) => node.depth === marked && node.ids.every((id, i) => id === look.value.target[i]);
  const shown = nodes.filter((node) => node.depth <= until);
  const tabbable = shown[Math.min(current, shown.length - 1)].n;
  const move = (event, node) => {
    const column = shown.filter((other) => other.depth === node.depth);
    const next = {
      ArrowLeft: node.above,
      ArrowRight: node.children.find((child) => child.depth <= until),
      ArrowUp: column[column.indexOf(node) - 1],
      ArrowDown: column[column.indexOf(node) + 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") force(node);
    else if (!next) return;
    else {
      setCurrent(next.n);
      svg.current.querySelector(`[data-node="${next.n}"]`).focus();
    }
    event.preventDefault();
  };
  return html`<svg class="figure tree ${pointed ? "some-lit" : ""}" ref=${svg} style="width:${width}px"
    viewBox="0 0 ${width} ${rows * ROW + 12}" role="group" aria-label="Search tree; arrow keys move, Enter forces a beginning">
    ${shown.slice(1).map(
      (node) => html`<path key=${node.n} class="branch ${node.fate} ${winning.has(node) ? "winning" : ""} ${lit.has(node) ? "lit" : ""}"
        d=${line({ source: [x(node.above) + BOX, y(node.above)], target: [x(node), y(node)] })} />`,
    )}
    ${shown.map((node) => html`<g key=${node.n} role="button" tabindex=${node.n === tabbable ? 0 : -1} data-node=${node.n}
        class="node ${node.fate} ${winning.has(node) ? "winning" : ""} ${lit.has(node) ? "lit" : ""} ${node === winner.node ? "winner" : ""} ${isMarked(node) ? "marked" : ""}"
        transform="translate(${x(node)} ${y(node) - TALL / 2})" aria-label=${describe(node)} aria-disabled=${!live}
        onClick=${() => force(node)} onKeyDown=${(event) => move(event, node)} ...${watching(node, setPointed)}>
      <rect width=${BOX} height=${TALL} rx="6" />
      <text x="9" y=${TALL / 2}>${shorten(label(look.value, node.token), 11)}</text>
      ${node.n > 0 && html`<rect class="chance" x="1.5" y=${TALL - 3.5} width=${(BOX - 3) * node.probability} height="2.5" rx="1" />`}
    </g>`)}
  </svg>`;
}

function watching(node, setPointed) {
  const events = pointing({}, html`<${NodeTip} node=${node} />`);
  const both = (name, value) => (event) => {
    setPointed(value);
    events[name](event);
  };
  return { onPointerEnter: both("onPointerEnter", node), onFocus: both("onFocus", node),
    onPointerLeave: both("onPointerLeave", null), onBlur: both("onBlur", null) };
}

const lineage = (node) => (node.above ? [...lineage(node.above), node] : [node]);

function force(node) {
  if (live) [prefix.value, grown.value] = [node.ids, null];
}

const describe = (node) =>
  node.n ? `${spell(look.value, node.ids) || "nothing"}, ${label(look.value, node.token)}: ${FATES[node.fate]}, log-probability ${minus(node.logProb)}`
    : "start of the search";

function NodeTip({ node }) {
  if (!node.n) return html`Nothing has been said.`;
  const lasting = node.fate === "kept" && node.children.length === 0;
  return html`<b class="target">${spell(look.value, node.ids) || "…"}</b>
    <dl>
      <dt>this token</dt><dd>${percent(node.probability)}</dd>
      <dt>log-probability</dt><dd>${minus(node.logProb)}</dd>
      <dt>score</dt><dd>${minus(scoreOf(node, shownAlpha.value))}</dd>
      <dt>fate</dt><dd>${lasting ? "kept; could no longer win" : FATES[node.fate]}</dd>
    </dl>`;
}

function Growing({ steps, until }) {
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => {
      const next = (grown.peek() ?? steps) + 1;
      grown.value = next >= steps ? null : next;
      if (next >= steps) setPlaying(false);
    }, 550);
    return () => clearInterval(timer);
  }, [playing, steps]);
  const play = () => {
    if (!playing && until >= steps) grown.value = 1;
    setPlaying(!playing);
  };
  return html`<button type="button" class="play" onClick=${play}>${playing ? "Pause" : "Grow"}</button>
    <${Slider} label="Step" min="1" max=${steps} step="1" value=${until} shown="${until} of ${steps}"
      onSlide=${(n) => (grown.value = n === steps ? null : n)} />`;
}

function Ranking({ ranked, best }) {
  const list = ranked.slice(0, 10);
  const rankOf = new Map(list.map(({ node }, i) => [node.n, i]));
  const steady = [...list].sort((a, b) => a.node.n - b.node.n); // rows keep their element and slide to their rank
  const other = ranked[0].node.ids.join() !== best.join();
  const moved = shownAlpha.value !== look.value.alpha;
  return html`<div class="card ranking">
    <div class="ranking-head">
      <div>
        <h3>What was finished</h3>
        <p>Score = log-probability ÷ ((5 + length) / 6)<sup>α</sup>. A higher α favours longer outputs.</p>
      </div>
      <${Slider} label=${html`Length penalty <i>α</i>`} min="-1" max="3" step="0.1" value=${shownAlpha.value}
        shown=${minus(shownAlpha.value, 1)} onSlide=${(x) => (alpha.value = x)} />
    </div>
    <ol class="ranks" style="height:${list.length * 44}px" aria-label="Finished hypotheses, best first">
      ${steady.map(({ node, score }) => {
        const place = rankOf.get(node.n);
        return html`<li key=${node.n} class=${place === 0 ? "first" : ""} style="transform:translateY(${place * 44}px)" data-rank=${place + 1}>
          <span class="place">${place + 1}</span>
          <span class="said">${spell(look.value, node.ids) || "(nothing)"}</span>
          <span class="number"><small>length</small>${node.depth}</span>
          <span class="number"><small>log-prob.</small>${minus(node.logProb)}</span>
          <span class="number score"><small>score</small>${minus(score)}</span>
        </li>`;
      })}
    </ol>
    <p class="note" aria-live="polite">
      ${moved
        ? html`${other ? "Another output would have won. " : "The same output wins. "}The search itself used α = ${minus(look.value.alpha, 1)}, and
            may find others with this one. ${live && html`<button type="button" onClick=${() => (searched.value = shownAlpha.value)}>search again</button>`}`
        : "This is the penalty that the search used."}
    </p>
  </div>`;
}
