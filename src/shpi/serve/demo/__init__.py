"""A simulated shop that sends traffic to a service: watch it learn, and compare with the true values."""

from shpi.serve.demo.run import run_demo
from shpi.serve.demo.shop import Shop
from shpi.serve.demo.traffic import Traffic

__all__ = ["Shop", "Traffic", "run_demo"]
