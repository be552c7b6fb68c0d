"""Tables in text files: CSV in any dialect, JSON lines, and VW's decision logs."""
