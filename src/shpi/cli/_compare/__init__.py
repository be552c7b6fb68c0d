"""Inside `shpi compare`: one process per learner, and the evaluation of all policies on held-out users."""
