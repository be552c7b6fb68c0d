"""The verbs that need no log: simulators, the paper's experiments, a demo."""
