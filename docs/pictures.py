"""Make the pictures of the concept pages with the library: `make pictures`."""

import sys
from pathlib import Path

import jax
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import deeplin as dl
from deeplin.plot_style import INK, LIMIT, PAPER, QUIET, RC, THEORY, TRAINED

FOLDER = Path(__file__).parent / "images"
LARGE = {"font.size": 11, "axes.titlesize": 12, "axes.labelsize": 12, "legend.fontsize": 11}
"""Readable on a phone, where a picture is three inches wide."""
problem = dl.problems.synthetic.flat_minima(seed=0).problem
flattest = dl.theory.minimal_sharpness(problem, depth=10)


def critical_rate(axes):
    """Where training ends, for every depth and learning rate, and the critical rate."""
    rates, depths = np.geomspace(0.03, 0.7, 160), range(2, 14)
    dl.plot.phase(problem, depths, rates, starts=5, steps=30_000, ax=axes)
    axes.figure.axes[-1].remove()  # the words say what the colors and the line mean
    axes.get_legend().remove()
    limits = [dl.theory.critical_learning_rate(problem, depth) for depth in depths]
    bold = {"fontsize": 12, "weight": "bold"}
    axes.text(2, 0.055, "settles at a minimum", color=INK, **bold)
    axes.text(7.2, 0.172, "no minimizer is stable", color=PAPER, fontsize=11, weight="bold")
    axes.text(10.2, 0.3, "diverges", color=PAPER, **bold)
    axes.annotate(
        "2/S_min: computed from the\ndata, without training",
        (5, limits[3]),
        xytext=(4.6, 0.45),
        color=PAPER,
        arrowprops={"arrowstyle": "-|>", "color": PAPER, "linewidth": 2},
        **bold,
    )
    axes.set_yticks([0.03, 0.05, 0.1, 0.2, 0.5], ["0.03", "0.05", "0.1", "0.2", "0.5"])
    axes.minorticks_off()
    axes.set_title("Where 9600 trained networks end")


def sharpness(axes):
    """Sharpness along training: stable, and at the edge of stability."""
    net = dl.initialize.gaussian(jax.random.key(1), widths=(5,) * 10 + (1,), scale=0.42)
    run = dl.gradient_descent(
        problem, net, [0.02, 0.05, 0.08], steps=1500, record_every=5, record=("sharpness",)
    )
    dl.plot.training(run, ax=axes)
    axes.axhline(flattest.exact, color=THEORY, label="$S_{min}$, exact")
    axes.set_title("Sharpness along training, dashed: 2/η")
    axes.set_ylim(3, None)
    axes.legend(loc="lower right", ncols=2)


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
        color=THEORY,
        alpha=0.2,
        label="bounds of FM-T2",
        linewidth=0,
    )
    axes.plot(depths, [m.exact for m in minima], color=THEORY, label="$S_{min}$, exact (X-2)")
    axes.plot(depths, balanced, ":", color=INK, label="$S_{bal}$, small start (X-3)")
    axes.set(xlabel="depth L", ylabel="sharpness", xlim=(2, 20), ylim=(0, None))
    axes.set_title("The flattest minimizer, condition number 10")
    axes.legend(loc="upper left")


def initializations(left, right):
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
    colors = mpl.colormaps["plasma"](np.linspace(0.1, 0.85, 4))  # first layer violet, last yellow
    for k, values in enumerate(run.records["singular_values"].T):
        left.plot(steps, values, color=colors[k], label=f"layer {k + 1}")
    left.set(xlabel="step", ylabel="largest singular value", ylim=(0, None))
    left.set_title("Layers grow together")
    left.legend()
    for k, values in enumerate(run.records["alignment"].T):
        right.plot(steps, values, color=colors[k], label=f"layers {k + 1}, {k + 2}")
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
        alphas**2, above.mean(axis=0), spread, color=TRAINED, marker="o", label="trained network"
    )
    axes.axhline(0, color=THEORY, linestyle="--", label="minimum-norm interpolant")
    axes.set(xlabel="variance α² of the first layer", ylabel="risk above minimum norm")
    axes.set_title("d = 500, n = 100, width 5030: mean of 8 runs, 95%")
    axes.legend(loc="upper left")


def edge(left, right):
    """One start at the critical rate and above it: sharpness, and where the flow would end."""
    data = dl.problems.synthetic.flat_minima(seed=9).problem
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 5, 1), scale=0.3)
    critical = dl.theory.critical_learning_rate(data, depth=3)
    for axes, factor in ((left, 0.95), (right, 1.1)):
        rate = factor * critical
        run = dl.gradient_descent(
            data, net, rate, 60, record_every=1, record=("sharpness", "flow_sharpness")
        )
        steps = run.records["step"]
        axes.plot(steps, run.records["sharpness"], color=TRAINED, label="sharpness")
        ends = run.records["flow_sharpness"]
        axes.plot(steps, ends, "--", color=QUIET, linewidth=2.5, label="where the flow would end")
        axes.axhline(2 / rate, color=LIMIT, label="2/η")
        axes.axhline(2 / critical, color=THEORY, label="$S_{min}$")
        axes.set(xlabel="step", xlim=(0, 60), ylim=(0, None))
        axes.set_title(f"η = {factor:g} of the critical rate")
        axes.set_ylabel("sharpness")
    right.legend(loc="lower right", ncols=2)


def main():
    FOLDER.mkdir(exist_ok=True)
    plots = {
        "critical-rate": (critical_rate, 1),
        "concept-sharpness": (sharpness, 1),
        "concept-flat-minima": (flat_minima, 1),
        "concept-initializations": (initializations, 2),
        "concept-benign": (benign, 1),
        "concept-edge": (edge, 2),
    }
    for name in sys.argv[1:] or plots:
        plot, rows = plots[name]
        with mpl.rc_context({**RC, **LARGE, "svg.hashsalt": name}):
            figure = Figure(figsize=(5.6, 3.4 * rows), layout="constrained")
            plot(*np.ravel(figure.subplots(rows)))
            kind = {"format": "png", "dpi": 160} if plot is critical_rate else {"format": "svg"}
            metadata = {"Software": None} if plot is critical_rate else {"Date": None}
            path = FOLDER / f"{name}.{kind['format']}"
            figure.savefig(path, metadata=metadata, **kind)
        print(name)


if __name__ == "__main__":
    main()
