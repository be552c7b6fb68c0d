"""The parts of a gate's verdict: claims, guards, the witness, first steps, users needed, events."""
