"""How the program behaves in a shell: options, reading logs, broken pipes, error messages, completion."""
