"""Where the printed statement, the algebra and the authors' own data disagree, in short.

`docs/errata.md` has the derivations; a test keeps the two lists the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Erratum(NamedTuple):
    """What is printed, and what we find; `pytest -k errata_E4` shows the evidence of E-4."""

    identifier: str
    where: str
    printed: str
    finding: str


ERRATA = (
    Erratum(
        "E-1",
        "FM, proof of Lemma 3",
        "exp(−Ldu²/(4s⁴+us²))",
        "The preceding line gives 4s⁴+4us² in the denominator.",
    ),
    Erratum(
        "E-2",
        "FM, proof of Lemma 3",
        "exp(−Ld²u²/(16(4s²+du)))",
        "The preceding line gives 16s²(4s²+du).",
    ),
    Erratum(
        "E-3",
        "FM, proof of Lemma 3",
        "E exp(λS) = exp(4s²λ²/d)",
        "For N(0, 4s²/d) it is exp(2s²λ²/d). The bound that follows stays valid and could be "
        "exp(−du²/(8s²)).",
    ),
    Erratum(
        "E-4",
        "BO, Theorem 3.1 and Lemma 4.5, case ‖Θ⊥(0)‖ = 0",
        "Ξ = 0: the network ends at the minimum-norm interpolant",
        "Not in general: with β = 0 and a Gaussian first layer the initial function is zero, yet "
        "the flow ends away from Θ_min. The condition that works is X-6.",
    ),
    Erratum(
        "E-5",
        "BO, eq. (4) and Lemma 4.4",
        "Gradient of ‖Y−XΘ‖² without its factor 2",
        "The true gradient is used here; bounds that integrate √ℒ gain a factor 2.",
    ),
    Erratum(
        "E-6",
        "BO, Definition 2.3 and Lemma B.1",
        "Entries N(0, α²), then σ_max(W_1) < 2α",
        "This holds for entries N(0, α²/m).",
    ),
    Erratum(
        "E-7",
        "Talk, alignment",
        "1 − ε/(2‖w*‖)^{2/L}",
        "FM-L2 with FM-C1 gives 1 − ε/(‖w*‖/2)^{2/L}.",
    ),
    Erratum(
        "E-8",
        "FM, Theorem 2, first bound",
        "S_min ≥ … Σ 1/‖W_k‖_F",
        "The right side depends on W: it bounds the sharpness of that minimiser.",
    ),
    Erratum(
        "E-9",
        "FM, figures",
        "‖w − w*‖²",
        "The authors' plots show the mean over the d coordinates, a factor d = 5 less.",
    ),
    Erratum(
        "E-10",
        "BO, Figure 2 (ReLU)",
        "Trained until the loss is below 1e-7; teacher of width 50",
        "As run: stopped at 10⁵ steps with training loss 2.1 to 3.3, teacher of width 10. At α = 0 "
        "all gradients vanish, so that point is the zero predictor.",
    ),
    Erratum(
        "E-11",
        "BO, Figures 1 and 3 at d = 2000",
        "Gradient-flow regime",
        "The step 1e-4 on the mean loss has η·λ_max about 2.45 > 2 there: descent catapults, and "
        "its end differs from that of gradient flow.",
    ),
)
