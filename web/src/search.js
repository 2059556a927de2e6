// Beam search: the tree of all hypotheses considered, and the ranking of the finished ones.

import { computed, signal, useComputed } from "@preact/signals";
import { linkHorizontal } from "d3-shape";
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Figure, format, highlightOnHover, percent, shorten, Slider } from "./components.js";
import { live } from "./data.js";
import { item, roving } from "./roving.js";
import { alpha, highlight, inspection, prefix, searchAlpha, shownAlpha, treeSteps } from "./state.js";
import { decode, label } from "./tokens.js";

const [COLUMN, ROW, NODE_WIDTH, NODE_HEIGHT] = [134, 34, 92, 24];
const OUTCOMES = ["kept", "pruned", "finished"];

export function Search() {
  const shown = inspection.value;
  const nodes = useMemo(() => buildTree(shown.tree), [shown]);
  const ranked = useMemo(() => rank(nodes, shownAlpha.value), [nodes, shownAlpha.value]);
  const steps = nodes.at(-1).depth;
  const shownSteps = Math.min(treeSteps.value ?? steps, steps);
  return html`<section id="search-section" aria-labelledby="search">
    <h2 id="search">Search</h2>
    <p class="lead">At each step, every hypothesis is extended by its most probable tokens; the best ${shown.beam} of all extensions are
      kept. ${live ? "Choose a node to force its tokens as a prefix and continue the search from there."
        : "Forcing a prefix needs the model: open this page with transduce serve."}</p>
    <${Figure} name="search-tree" title="Search tree" hint=${html`<${Legend} />`} table=${() => treeTable(nodes)} wide>
      <${Tree} nodes=${nodes} winner=${ranked[0].node} shownSteps=${shownSteps} />
    <//>
    <div class="controls under">
      <${Playback} steps=${steps} shownSteps=${shownSteps} />
    </div>
    <${Ranking} ranked=${ranked} best=${shown.target} />
  </section>`;
}

/** The nodes with their parent, children, depth, row within their step, and token ids from the root. */
function buildTree({ parent: parents, token, log_prob, outcome }) {
  const nodes = [];
  const rows = []; // number of nodes at each depth
  parents.forEach((index, n) => {
    const parent = n ? nodes[index] : null;
    const depth = parent ? parent.depth + 1 : 0;
    const row = rows[depth] ?? 0;
    rows[depth] = row + 1;
    const node = { n, parent, depth, row, token: token[n], logProb: log_prob[n], outcome: outcome[n], children: [],
      ids: parent ? [...parent.ids, token[n]] : [] };
    node.probability = Math.exp(node.logProb - (parent?.logProb ?? 0));
    parent?.children.push(node);
    nodes.push(node);
  });
  return nodes;
}

const treeTable = (nodes) => ({
  columns: ["output", "token", "log-probability", "outcome"],
  rows: nodes.slice(1).map((node) => [decode(inspection.value, node.ids) || "…", label(inspection.value, node.token), format(node.logProb), node.outcome]),
});

const scoreOf = (node, alpha) => node.logProb / ((5 + node.depth) / 6) ** alpha;

function rank(nodes, alpha) {
  return nodes
    .filter((node) => node.outcome === "finished")
    .map((node) => ({ node, score: scoreOf(node, alpha) }))
    .sort((a, b) => b.score - a.score);
}

function Legend() {
  return html`<span class="legend">
    ${OUTCOMES.map((outcome) => html`<span class="outcome ${outcome}">${outcome}</span>`)}
    <span>the bar shows the probability of the token</span>
  </span>`;
}

/** The node under the pointer or focus. The path to it is drawn above the tree, which is not drawn again. */
const hoveredNode = signal(null);
const treeClass = computed(() => `figure tree ${hoveredNode.value ? "faint" : ""}`);

function Tree({ nodes, winner, shownSteps }) {
  const svg = useRef();
  const deepest = Math.max(...nodes.map((node) => node.depth));
  const rows = 1 + Math.max(...nodes.map((node) => node.row));
  const [width, height] = [deepest * COLUMN + NODE_WIDTH + 16, rows * ROW + 12];
  const winning = useMemo(() => new Set(path(winner)), [winner]);
  const shown = nodes.filter((node) => node.depth <= shownSteps);
  useEffect(() => void (hoveredNode.value = null), [nodes]);
  useEffect(() => {
    if (shownSteps === deepest && treeSteps.peek() === null) return;
    const scroller = svg.current.closest(".scroll"); // the newest step stays in view while the tree grows
    const right = shownSteps * COLUMN + NODE_WIDTH + 40;
    if (right > scroller.scrollLeft + scroller.clientWidth || right < scroller.scrollLeft + COLUMN) scroller.scrollLeft = right - scroller.clientWidth;
  }, [shownSteps]);
  const move = (event, node) => {
    const column = shown.filter((other) => other.depth === node.depth);
    const next = {
      ArrowLeft: node.parent,
      ArrowRight: node.children.find((child) => child.depth <= shownSteps),
      ArrowUp: column[column.indexOf(node) - 1],
      ArrowDown: column[column.indexOf(node) + 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") force(node);
    else if (!next) return;
    else svg.current.querySelector(`[data-node="${next.n}"]`).focus();
    event.preventDefault();
  };
  const styleOf = (node) => `${node.outcome} ${winning.has(node) ? "winning" : ""} ${node === winner ? "winner" : ""}`;
  return html`<div class="layers" style="width:${width}px" onFocusIn=${roving.onFocusIn}>
    <svg class=${treeClass} ref=${svg} viewBox="0 0 ${width} ${height}" role="group"
      aria-label="Search tree; arrow keys move, Enter forces a prefix">
      ${shown.slice(1).map((node) => html`<${Branch} key="b${node.n}" node=${node} style=${styleOf(node)} />`)}
      ${shown.map((node) => html`<${TreeNode} key=${node.n} node=${node} style=${styleOf(node)} move=${move} />`)}
    </svg>
    <svg class="overlay" viewBox="0 0 ${width} ${height}" aria-hidden="true"><${ActivePath} styleOf=${styleOf} /></svg>
  </div>`;
}

const x = (node) => 8 + node.depth * COLUMN;
const y = (node) => 8 + node.row * ROW + NODE_HEIGHT / 2;
const line = linkHorizontal();

const Branch = ({ node, style }) =>
  html`<path class="branch ${style}" d=${line({ source: [x(node.parent) + NODE_WIDTH, y(node.parent)], target: [x(node), y(node)] })} />`;

function TreeNode({ node, style, move }) {
  const highlighted = useComputed(() => {
    const { query } = highlight.value;
    return query?.side === "target" && node.depth === query.position + 1 && node.ids.every((id, i) => id === inspection.value.target[i]);
  }).value;
  return html`<g role="button" ...${item("node", node.n === 0)} data-node=${node.n} class="node ${style} ${highlighted ? "highlighted" : ""}"
      transform="translate(${x(node)} ${y(node) - NODE_HEIGHT / 2})" aria-label=${describe(node)} aria-disabled=${!live}
      onKeyDown=${(event) => move(event, node)} ...${hoverHandlers(node)}><${NodeBox} node=${node} /></g>`;
}

const NodeBox = ({ node }) => html`<rect width=${NODE_WIDTH} height=${NODE_HEIGHT} rx="6" />
  <text x="9" y=${NODE_HEIGHT / 2}>${shorten(label(inspection.value, node.token), 11)}</text>
  ${node.n > 0 && html`<rect class="probability" x="1.5" y=${NODE_HEIGHT - 3.5} width=${(NODE_WIDTH - 3) * node.probability} height="2.5" rx="1" />`}`;

/** The nodes from the root to the one under the pointer or focus. */
function ActivePath({ styleOf }) {
  const nodes = hoveredNode.value ? path(hoveredNode.value) : [];
  return html`${nodes.slice(1).map((node) => html`<${Branch} key="b${node.n}" node=${node} style=${styleOf(node)} />`)}
    ${nodes.map((node) => html`<g key=${node.n} class="node ${styleOf(node)}" transform="translate(${x(node)} ${y(node) - NODE_HEIGHT / 2})"><${NodeBox} node=${node} /></g>`)}`;
}

function hoverHandlers(node) {
  const handlers = highlightOnHover({}, html`<${NodeTooltip} node=${node} />`, () => force(node));
  const both = (name, value) => (event) => {
    hoveredNode.value = value;
    handlers[name](event);
  };
  return { ...handlers, onPointerEnter: both("onPointerEnter", node), onFocus: both("onFocus", node),
    onPointerLeave: both("onPointerLeave", null), onBlur: both("onBlur", null) };
}

/** The nodes from the root to a node. */
const path = (node) => (node.parent ? [...path(node.parent), node] : [node]);

function force(node) {
  if (live) [prefix.value, treeSteps.value] = [node.ids, null];
}

const describe = (node) =>
  node.n ? `${decode(inspection.value, node.ids) || "empty"}, ${label(inspection.value, node.token)}: ${node.outcome}, log-probability ${format(node.logProb)}`
    : "start of the search";

function NodeTooltip({ node }) {
  if (!node.n) return html`The search starts here.`;
  const abandoned = node.outcome === "kept" && node.children.length === 0;
  return html`<b class="target">${decode(inspection.value, node.ids) || "…"}</b>
    <dl>
      <dt>probability of the token</dt><dd>${percent(node.probability)}</dd>
      <dt>log-probability</dt><dd>${format(node.logProb)}</dd>
      <dt>score</dt><dd>${format(scoreOf(node, shownAlpha.value))}</dd>
      <dt>outcome</dt><dd>${abandoned ? "kept, but could no longer win" : node.outcome}</dd>
    </dl>`;
}

/** Controls that show the search step by step. */
function Playback({ steps, shownSteps }) {
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => {
      const next = (treeSteps.peek() ?? steps) + 1;
      treeSteps.value = next >= steps ? null : next;
      if (next >= steps) setPlaying(false);
    }, 550);
    return () => clearInterval(timer);
  }, [playing, steps]);
  const play = () => {
    if (!playing && shownSteps >= steps) treeSteps.value = 1;
    setPlaying(!playing);
  };
  return html`<button type="button" class="play" onClick=${play}>${playing ? "Pause" : "Play"}</button>
    <${Slider} label="Step" min="1" max=${steps} step="1" value=${shownSteps} shown="${shownSteps} of ${steps}"
      onSlide=${(n) => (treeSteps.value = n === steps ? null : n)} />`;
}

function Ranking({ ranked, best }) {
  const changed = ranked[0].node.ids.join() !== best.join();
  const differs = shownAlpha.value !== inspection.value.alpha;
  return html`<div class="card ranking">
    <div class="ranking-head">
      <div>
        <h3>Finished hypotheses</h3>
        <p>Score = log-probability ÷ ((5 + length) / 6)<sup>α</sup>. A higher α favours longer outputs.</p>
      </div>
      <${Slider} label=${html`Length penalty <i>α</i>`} min="-1" max="3" step="0.1" value=${shownAlpha.value}
        shown=${format(shownAlpha.value, 1)} onSlide=${(x) => (alpha.value = x)} />
    </div>
    <ol class="ranks" aria-label="Finished hypotheses, best first">
      ${ranked.slice(0, 10).map(({ node, score }, rank) => html`<li key=${node.n} class=${rank === 0 ? "first" : ""} data-rank=${rank + 1}>
        <span class="rank" aria-hidden="true">${rank + 1}</span>
        <span class="text">${decode(inspection.value, node.ids) || "(empty)"}</span>
        <span class="number"><small>length</small>${node.depth}</span>
        <span class="number"><small>log-prob.</small>${format(node.logProb)}</span>
        <span class="number score"><small>score</small>${format(score)}</span>
      </li>`)}
    </ol>
    <p class="note" aria-live="polite">
      ${differs
        ? html`${changed ? "Another output ranks first. " : "The same output ranks first. "}The search used α = ${format(inspection.value.alpha, 1)} and
            may find other outputs with this one. ${live && html`<button type="button" onClick=${() => (searchAlpha.value = shownAlpha.value)}>search again</button>`}`
        : "The search used this length penalty."}
    </p>
  </div>`;
}
