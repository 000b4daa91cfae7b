"""Make the pictures of the concept pages with the library: `make pictures`."""

from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import deeplin as dl
from deeplin.figures.style import COLOURS, INK, QUIET, RC

FOLDER = Path(__file__).parent / "images"
problem = dl.problems.synthetic.flat_minima(seed=0).problem
flattest = dl.theory.minimal_sharpness(problem, depth=10)


def sharpness(axes):
    """Sharpness along training: stable, and at the edge of stability."""
    net = dl.initialize.gaussian(jax.random.key(1), widths=(5,) * 10 + (1,), scale=0.42)
    rates = np.array([0.02, 0.05, 0.08])
    run = dl.gradient_descent(
        problem, net, rates, steps=1500, record_every=5, record=("sharpness",)
    )
    for rate, colour, values in zip(rates, COLOURS, run.records["sharpness"].T, strict=False):
        axes.plot(run.records["step"], values, color=colour, label=f"η = {rate:g}")
        axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=0.9)
    axes.axhline(flattest.exact, color=INK, linestyle=":", label="$S_{min}$, exact")
    axes.set(xlabel="step", ylabel="sharpness", yscale="log", xlim=(0, 1500))
    axes.set_title("Sharpness along training, dashed: 2/η")
    axes.legend()


def flat_minima(axes):
    """The bracket of FM-T2 and what is inside it."""
    data = dl.problems.synthetic.flat_minima(seed=0, condition_number=10.0).problem
    depths = np.arange(2, 21)
    minima = [dl.theory.minimal_sharpness(data, int(depth)) for depth in depths]
    balanced = [dl.theory.balanced_sharpness(data, int(depth)) for depth in depths]
    axes.fill_between(
        depths,
        [m.lower for m in minima],
        [m.upper for m in minima],
        color=QUIET,
        alpha=0.25,
        label="bracket (FM-T2)",
        linewidth=0,
    )
    axes.plot(depths, [m.exact for m in minima], color=COLOURS[0], label="$S_{min}$, exact (X-2)")
    axes.plot(depths, balanced, "--", color=COLOURS[1], label="$S_{bal}$, small start (X-3)")
    axes.set(xlabel="depth L", ylabel="sharpness", xlim=(2, 20), ylim=(0, None))
    axes.set_title("The flattest minimiser, condition number 10")
    axes.legend(loc="upper left")


def initialisations(left, right):
    """Layers grow together and align from a small start."""
    net = dl.initialize.gaussian(jax.random.key(3), widths=(5,) * 4 + (1,), scale=0.15)
    run = dl.gradient_descent(
        problem,
        net,
        learning_rate=0.02,
        steps=600,
        record_every=3,
        record=("singular_values", "alignment"),
    )
    steps = run.records["step"]
    for k, values in enumerate(run.records["singular_values"].T):
        left.plot(steps, values, color=COLOURS[k], label=f"layer {k + 1}")
    left.set(xlabel="step", ylabel="largest singular value", ylim=(0, None))
    left.set_title("Layers grow together")
    left.legend()
    for k, values in enumerate(run.records["alignment"].T):
        right.plot(steps, values, color=COLOURS[k], label=f"layers {k + 1}, {k + 2}")
    right.set(xlabel="step", ylabel="alignment ⟨v, u⟩²", ylim=(0, 1.05))
    right.set_title("and align")
    right.legend(loc="lower right")


def benign(axes):
    """Excess risk against the variance of the first layer."""
    alphas = np.linspace(0, 1e-3, 6)
    risks, baselines = [], []
    for seed in range(8):
        data = dl.problems.synthetic.spiked(seed=seed, dimension=500)
        known = {"optimum": data.truth, "covariance": data.spectrum}
        baselines.append(float(dl.population_risk(data.problem.optimum, **known)))
        risks.append(
            [
                float(
                    dl.population_risk(
                        dl.simulate_wide(
                            data.problem,
                            width=5030,
                            depth=3,
                            alpha=alpha,
                            beta=1.0,
                            key=jax.random.key(seed),
                        ).theta,
                        **known,
                    )
                )
                for alpha in alphas
            ]
        )
    above = np.array(risks) - np.array(baselines)[:, None]  # paired: the same data for both
    spread = 1.96 * above.std(axis=0, ddof=1) / np.sqrt(len(above))
    axes.errorbar(
        alphas**2, above.mean(axis=0), spread, color=COLOURS[0], marker="o", label="trained network"
    )
    axes.axhline(0, color=COLOURS[1], linestyle="--", label="minimum-norm interpolant")
    axes.set(xlabel="variance α² of the first layer", ylabel="excess risk above minimum norm")
    axes.set_title("d = 500, n = 100, width 5030: mean of 8 runs, 95% interval")
    axes.legend(loc="upper left")


def main():
    FOLDER.mkdir(exist_ok=True)
    plots = {
        "concept-sharpness": (sharpness, 1),
        "concept-flat-minima": (flat_minima, 1),
        "concept-initialisations": (initialisations, 2),
        "concept-benign": (benign, 1),
    }
    for name, (plot, columns) in plots.items():
        with mpl.rc_context({**RC, "svg.hashsalt": name}):
            figure = Figure(figsize=(7.5, 3.4), layout="constrained")
            plot(*np.ravel(figure.subplots(1, columns)))
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        print(name)


if __name__ == "__main__":
    main()
