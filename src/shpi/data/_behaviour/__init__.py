"""Inside `shpi.data.propensity`: cross-fitted behaviour policies, and their calibration."""
