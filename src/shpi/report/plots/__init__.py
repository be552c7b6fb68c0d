"""How the charts of `shpi.report.svg` are drawn, one kind of chart per file."""
