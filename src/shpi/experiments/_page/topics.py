"""The paper's statements and our own: the topics by which claims are counted."""

from __future__ import annotations

PAPER = {
    "story": "In the storefront: bandit < session RL < SHPI",
    "rivals": "SHPI is better than the logging policy, bandits and offline RL",
    "signal": "Training on the long-term reward beats training on clicks",
    "returns": "A_k gives better policies than A^mu and A^pi",
    "errors": "A_k is estimated with a lower error than A^mu and A^pi",
    "uniform": "SHPI learns better from a uniform log than from one near the optimum",
    "backshift": "Rewards recovered by backshift help, and survive a bias",
    "variance": "A larger k raises the variance",
    "as-released": "In the released worlds released() scores what the authors' code scores",
    "proximal": "The proximal penalty stabilises learning from narrow logs",
}
OURS = {
    "best": "Our defaults have the highest mean of all offline methods",
    "safe": "Our defaults are not worse than the logging policy",
    "auto-k": "The chosen k is not clearly worse than the best fixed one",
    "data-size": "Few users are enough to be better than the logging policy",
    "hybrid": "A log first, then online: better than either alone",
    "drift": "Our defaults are better than the logging policy when preferences drift",
}
SHORT = {  # short names for a figure
    "rivals": "better than rivals",
    "signal": "long-term beats clicks",
    "returns": "A_k: better policies",
    "errors": "A_k: lower error",
    "uniform": "better from uniform logs",
    "backshift": "backshift helps",
    "variance": "larger k, more variance",
    "proximal": "the penalty stabilises",
}
