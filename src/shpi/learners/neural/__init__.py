"""Baselines that train networks: BCQ, CQL, NN-IPS, CB + MF, and the loops that they share (need torch)."""
