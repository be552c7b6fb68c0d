"""Inside `shpi compare`: one process per learner, and users that judge all of their policies."""
