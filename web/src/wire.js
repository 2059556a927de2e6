// A look from the bytes that transduce/inspect/wire.py wrote.

export function fromBytes(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const look = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const table = (name) => {
    const { at, shape } = look.blocks[name];
    const size = shape.reduce((product, n) => product * n, 1);
    return new Uint8Array(buffer, 4 + length + at, size);
  };
  const steps = look.target.length;
  look.attention = {
    encoder: table("encoder"),
    decoder: fillTriangles(table("decoder"), steps),
    cross: table("cross"),
  };
  const [places, width] = look.blocks.positions.shape;
  look.positions = { places, width, bytes: table("positions") };
  return look;
}

/** What lies above the diagonal was left out; it is 0. */
function fillTriangles(packed, size) {
  const matrices = packed.length / ((size * (size + 1)) / 2);
  const full = new Uint8Array(matrices * size * size);
  let from = 0;
  for (let m = 0; m < matrices; m++) {
    for (let row = 0; row < size; row++) {
      full.set(packed.subarray(from, from + row + 1), (m * size + row) * size);
      from += row + 1;
    }
  }
  return full;
}
