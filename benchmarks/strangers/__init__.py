"""Four logs as strangers have them, written as raw files by simulators whose truth is known."""
