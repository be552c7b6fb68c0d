"""How results are shown: tables, claims, statistics, figures, the page."""
