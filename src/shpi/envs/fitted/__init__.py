"""World models: simulators that are fitted to a log (`WorldModel`, `FittedWorld`)."""
