// Decodes the binary format of transduce/inspect/serialize.py.

export function deserialize(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const inspection = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const table = (name) => {
    const { offset, shape } = inspection.tables[name];
    const size = shape.reduce((product, n) => product * n, 1);
    return new Uint8Array(buffer, 4 + length + offset, size);
  };
  inspection.attention = {
    encoder: table("encoder"),
    decoder: fillTriangles(table("decoder"), inspection.target.length),
    cross: table("cross"),
  };
  const [count, width] = inspection.tables.positions.shape;
  inspection.positions = { count, width, bytes: table("positions") };
  return inspection;
}

/** Expand lower triangles to square matrices; the weights above the diagonal are 0. */
function fillTriangles(packed, size) {
  const matrices = packed.length / ((size * (size + 1)) / 2);
  const full = new Uint8Array(matrices * size * size);
  let from = 0;
  for (let row = 0; row < matrices * size; row++) {
    const length = (row % size) + 1;
    full.set(packed.subarray(from, from + length), row * size);
    from += length;
  }
  return full;
}
