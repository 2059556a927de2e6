// Byte pair encoding: which adjacent symbols of a text are merged, in which order.

/**
 * Merge adjacent symbols, the pair with the lowest rank first and of equal ones the leftmost; `join(left, right)` gives
 * {rank, symbol} of a pair that can be merged.
 */
export function mergeAll(symbols, join) {
  const count = symbols.length;
  const current = [...symbols]; // null where a symbol has been merged into the one before it
  const [before, after] = [new Int32Array(count), new Int32Array(count)];
  const heap = []; // of merges: their rank, the merged symbol, the places of the two symbols, and these
  const isFirst = (a, b) => a.rank < b.rank || (a.rank === b.rank && a.left < b.left);
  const push = (left, right) => {
    if (left < 0 || right >= count) return;
    const [first, second] = [current[left], current[right]];
    const joined = join(first, second);
    if (!joined) return;
    const merge = { rank: joined.rank, symbol: joined.symbol, left, right, first, second };
    let at = heap.push(merge) - 1;
    for (let up; at > 0 && isFirst(merge, heap[(up = (at - 1) >> 1)]); at = up) heap[at] = heap[up];
    heap[at] = merge;
  };
  const pop = () => {
    const top = heap[0];
    const last = heap.pop();
    if (!heap.length) return top;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && isFirst(heap[child + 1], heap[child])) child++;
      if (!isFirst(heap[child], last)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
    return top;
  };
  for (let i = 0; i < count; i++) [before[i], after[i]] = [i - 1, i + 1];
  for (let i = 1; i < count; i++) push(i - 1, i);
  while (heap.length) {
    const { symbol, left, right, first, second } = pop();
    if (current[left] !== first || current[right] !== second) continue; // one has been merged since
    [current[left], current[right]] = [symbol, null];
    after[left] = after[right];
    if (after[right] < count) before[after[right]] = left;
    push(before[left], left);
    push(left, after[left]);
  }
  return current.filter((symbol) => symbol !== null);
}
