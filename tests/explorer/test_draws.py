"""The page's own random numbers are normal, and differ between streams and seeds."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser
NORMALS = """async ([seed, stream, count]) => {
  const { Random } = await import("/random.js");
  return Array.from(new Random(seed, stream).normals(count));
}"""


def test_normals_are_normal(evaluate):
    draws = np.array(evaluate(NORMALS, [5, 1, 20_000]))
    assert abs(draws.mean()) < 4 / np.sqrt(len(draws))
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / len(draws))
    assert abs(np.mean(draws**4) - 3) < 4 * np.sqrt(96 / len(draws))
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / np.sqrt(len(draws))


def test_streams_and_seeds_differ(evaluate):
    first = {
        tuple(evaluate(NORMALS, [seed, stream, 3])) for seed in range(20) for stream in range(5)
    }
    assert len(first) == 100
