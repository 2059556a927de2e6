// Groups with one tab stop: arrow keys move between their items, the elements with data-item.

/** Handlers of a group; items with the same value of data-item belong together. */
export const roving = { onKeyDown: move, onFocusIn: keepTabStop };

const itemsLike = (group, item) => [...group.querySelectorAll(`[data-item="${item.dataset.item}"]`)].filter((one) => !one.disabled);

function move(event) {
  const item = event.target.closest("[data-item]");
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const items = itemsLike(event.currentTarget, item);
  const at = items.indexOf(item);
  const next = {
    ArrowRight: () => items[at + 1],
    ArrowLeft: () => items[at - 1],
    ArrowDown: () => nearest(items, item, 1) ?? items[at + 1],
    ArrowUp: () => nearest(items, item, -1) ?? items[at - 1],
    Home: () => items[0],
    End: () => items.at(-1),
  }[event.key]?.();
  if (!next) return;
  next.focus();
  event.preventDefault();
  event.stopPropagation();
}

/** The item in the next row above or below whose middle is nearest. */
function nearest(items, item, direction) {
  const own = item.getBoundingClientRect();
  const others = items.map((other) => [other, other.getBoundingClientRect()]).filter(([, box]) => direction * (box.top - own.top) > own.height / 2);
  const row = Math.min(...others.map(([, box]) => Math.abs(box.top - own.top)));
  const distance = ([, box]) => Math.abs(box.left + box.width / 2 - own.left - own.width / 2);
  return others.filter(([, box]) => Math.abs(Math.abs(box.top - own.top) - row) < own.height / 2).sort((a, b) => distance(a) - distance(b))[0]?.[0];
}

function keepTabStop(event) {
  const item = event.target.closest("[data-item]");
  if (!item) return;
  for (const other of itemsLike(event.currentTarget, item)) other.tabIndex = other === item ? 0 : -1;
}

/** The attributes of an item; `first` has the tab stop until another item gets the focus. */
export const item = (kind, first) => ({ "data-item": kind, tabindex: first ? 0 : -1 });
