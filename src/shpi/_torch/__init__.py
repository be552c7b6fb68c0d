"""Reproducible torch networks, their layers, and a perceptron with a hand-written gradient."""
