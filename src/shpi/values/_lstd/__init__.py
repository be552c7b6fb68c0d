"""Inside `LSTD`: the sums, and the choice of features and ridge by cross-validation."""
