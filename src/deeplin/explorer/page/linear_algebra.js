// Small dense linear algebra on row-major Float64Arrays.

export function identity(n) {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i++) out[i * n + i] = 1;
  return out;
}

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function norm(a) {
  return Math.sqrt(dot(a, a));
}

// The three products that carry q rows through a layer W (m×n) that starts at `at` inside a longer
// array. Each writes its result, or adds it to what is there.

/** out (q×n) = rows (q×m) · W. */
export function product(out, rows, W, at, q, m, n, add = false) {
  for (let r = 0; r < q; r++) {
    const o = r * n;
    let i = 0;
    if (!add) {
      const s = rows[r * m];
      for (let j = 0; j < n; j++) out[o + j] = s * W[at + j];
      i = 1;
    }
    for (; i < m; i++) {
      const s = rows[r * m + i];
      const w = at + i * n;
      for (let j = 0; j < n; j++) out[o + j] += s * W[w + j];
    }
  }
}

/** out (q×m) = rows (q×n) · Wᵀ. */
export function productTransposed(out, rows, W, at, q, m, n, add = false) {
  for (let r = 0; r < q; r++) {
    const a = r * n;
    for (let i = 0; i < m; i++) {
      const w = at + i * n;
      let sum = add ? out[r * m + i] : 0;
      for (let j = 0; j < n; j++) sum += rows[a + j] * W[w + j];
      out[r * m + i] = sum;
    }
  }
}

/** out (m×n, at `at`) = leftᵀ · right for left (q×m) and right (q×n): a matrix of rank q. */
export function outer(out, at, left, right, q, m, n, add = false) {
  for (let r = 0; r < q; r++) {
    const b = r * n;
    const fresh = r === 0 && !add;
    for (let i = 0; i < m; i++) {
      const s = left[r * m + i];
      const o = at + i * n;
      if (fresh) for (let j = 0; j < n; j++) out[o + j] = s * right[b + j];
      else for (let j = 0; j < n; j++) out[o + j] += s * right[b + j];
    }
  }
}

/** C = A B for A (n×k), B (k×m). */
export function multiply(A, B, n, k, m) {
  const out = new Float64Array(n * m);
  product(out, A, B, 0, n, k, m);
  return out;
}

export function transpose(A, n, m) {
  const out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) out[j * n + i] = A[i * m + j];
  return out;
}

const SWEEPS = 60;

/**
 * All eigenvalues of a symmetric matrix, largest first, and its eigenvectors as rows
 * (cyclic Jacobi rotations: slow for large matrices, accurate for all).
 */
export function symmetricEigen(matrix, n) {
  const A = Float64Array.from(matrix);
  const V = identity(n);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    let off = 0;
    let on = 0;
    for (let p = 0; p < n; p++) {
      on += A[p * n + p] ** 2;
      for (let q = p + 1; q < n; q++) off += A[p * n + q] ** 2;
    }
    if (off <= 1e-34 * on || off === 0) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) rotate(A, V, n, p, q);
    }
  }
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => A[b * n + b] - A[a * n + a]);
  const values = Float64Array.from(order, (i) => A[i * n + i]);
  const vectors = new Float64Array(n * n);
  order.forEach((from, to) => vectors.set(V.subarray(from * n, from * n + n), to * n));
  return { values, vectors };
}

function rotate(A, V, n, p, q) {
  const apq = A[p * n + q];
  if (apq === 0) return;
  const theta = (A[q * n + q] - A[p * n + p]) / (2 * apq);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  for (let k = 0; k < n; k++) {
    const x = A[k * n + p];
    const y = A[k * n + q];
    A[k * n + p] = c * x - s * y;
    A[k * n + q] = s * x + c * y;
  }
  for (let k = 0; k < n; k++) {
    const x = A[p * n + k];
    const y = A[q * n + k];
    A[p * n + k] = c * x - s * y;
    A[q * n + k] = s * x + c * y;
  }
  A[p * n + q] = A[q * n + p] = 0;
  for (let k = 0; k < n; k++) {
    const x = V[p * n + k];
    const y = V[q * n + k];
    V[p * n + k] = c * x - s * y;
    V[q * n + k] = s * x + c * y;
  }
}

/** Singular values of W (m×n at `at`), largest first, from the smaller of its Gram matrices. */
export function singularValues(W, at, m, n) {
  const k = Math.min(m, n);
  const gram = new Float64Array(k * k);
  for (let i = 0; i < k; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      if (m <= n) for (let l = 0; l < n; l++) sum += W[at + i * n + l] * W[at + j * n + l];
      else for (let l = 0; l < m; l++) sum += W[at + l * n + i] * W[at + l * n + j];
      gram[i * k + j] = gram[j * k + i] = sum;
    }
  }
  return symmetricEigen(gram, k).values.map((v) => Math.sqrt(Math.max(v, 0)));
}
