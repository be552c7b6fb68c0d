"""Torch, used with care: networks, their layers, and a perceptron with its gradient written out."""
