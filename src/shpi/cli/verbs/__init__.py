"""The verbs of the command line, one file each, with ``add_parser(verbs)`` and ``run(options)``."""
