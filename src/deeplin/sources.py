"""Sources of statements and figures: the papers and the talk."""

from __future__ import annotations

SOURCES = {
    "FM": {
        "key": "marion2024flat",
        "reference": "Pierre Marion and Lénaïc Chizat: Deep linear networks for regression are "
        "implicitly regularized towards flat minima. Advances in Neural Information Processing "
        "Systems, 2024.",
        "doi": "10.52202/079017-2445",
        "url": "https://arxiv.org/abs/2405.13456",
    },
    "BO": {
        "key": "chatterji2023benign",
        "reference": "Niladri S. Chatterji and Philip M. Long: Deep linear networks can benignly "
        "overfit when shallow ones do. Journal of Machine Learning Research 24(117), 1–39, 2023.",
        "url": "https://arxiv.org/abs/2209.09315",
    },
    "Talk": {
        "key": "marion2024three",
        "reference": "Pierre Marion: Three stories on deep linear networks. Slides, SIGMA 2024 "
        "workshop, CIRM, Marseille, 2024.",
        "url": "https://pierremarion23.github.io",
    },
}
