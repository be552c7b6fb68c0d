"""How experiments run: cells, workers, resumable runs, rows on disk."""
