// What single layers do along a run: largest singular value, norm, alignment with the neighbor.
import { EigenTracker } from "./eigen.js";
import { dot, norm, product, productTransposed } from "./linear_algebra.js";
import { Random } from "./random.js";

const PRECISION = { tolerance: 1e-6, most: 40 };

/** Follows the top singular vectors u_k, v_k of every layer of one run. */
export class LayerTracker {
  constructor({ widths, depth, offsets }) {
    const random = new Random(7, 7);
    this.layers = Array.from({ length: depth }, (_, k) => ({
      m: widths[k + 1],
      n: widths[k],
      at: offsets[k],
      tracker: new EigenTracker(widths[k], random),
      image: new Float64Array(widths[k + 1]),
    }));
  }

  /** {singular, norms, alignment} at these weights: one entry a layer, one a pair of neighbors. */
  measure(weights) {
    const singular = this.layers.map((layer) => this._follow(layer, weights));
    const norms = this.layers.map(({ at, m, n }) => norm(weights.subarray(at, at + m * n)));
    const alignment = this.layers.slice(1).map((layer, k) => {
      const below = this.layers[k];
      return below.length > 0 ? (dot(layer.tracker.vector, below.image) / below.length) ** 2 : 0;
    });
    return { singular, norms, alignment };
  }

  _follow(layer, weights) {
    const { at, m, n, image, tracker } = layer;
    const gram = (x, out) => {
      productTransposed(image, x, weights, at, 1, m, n);
      product(out, image, weights, at, 1, m, n);
    };
    const found = Math.sqrt(Math.max(tracker.largest(gram, PRECISION).value, 0));
    productTransposed(image, tracker.vector, weights, at, 1, m, n);
    layer.length = norm(image); // ‖Wv‖, so that u = Wv/‖Wv‖
    return found;
  }
}
