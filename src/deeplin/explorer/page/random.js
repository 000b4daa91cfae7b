// Random numbers from a seed, the same in every browser.
//
// A small chaotic generator with three words and a counter (32 bits each); seed and stream are
// the first words, and the first numbers are thrown away until they have mixed.

export class Random {
  constructor(seed, stream = 0) {
    this.a = seed >>> 0;
    this.b = stream >>> 0;
    this.c = 0x9e3779b9;
    this.count = 1;
    this.spare = null;
    for (let i = 0; i < 20; i++) this.word();
  }

  word() {
    const sum = (this.a + this.b + this.count) | 0;
    this.count = (this.count + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = ((this.c << 21) | (this.c >>> 11)) + sum;
    this.c |= 0;
    return sum >>> 0;
  }

  /** Uniform on (0, 1), 32 bits. */
  uniform() {
    return (this.word() + 0.5) / 4294967296;
  }

  /** Standard normal (Box and Muller, in pairs). */
  normal() {
    if (this.spare !== null) {
      const value = this.spare;
      this.spare = null;
      return value;
    }
    const radius = Math.sqrt(-2 * Math.log(this.uniform()));
    const angle = 2 * Math.PI * this.uniform();
    this.spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  normals(count) {
    const out = new Float64Array(count);
    for (let i = 0; i < count; i++) out[i] = this.normal();
    return out;
  }

  /** χ² with any number of degrees of freedom ≥ 1 (squeeze of Marsaglia and Tsang for Gamma). */
  chiSquare(degrees) {
    const d = degrees / 2 + (degrees < 2 ? 1 : 0) - 1 / 3;
    const c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const x = this.normal();
      const v = (1 + c * x) ** 3;
      if (v <= 0) continue;
      if (Math.log(this.uniform()) < (x * x) / 2 + d - d * v + d * Math.log(v)) {
        const boost = degrees < 2 ? this.uniform() ** (2 / degrees) : 1;
        return 2 * d * v * boost;
      }
    }
  }
}
