"""The verbs for those who have no log of their own: simulators, the paper's experiments, a tour."""
