"""One file per subcommand of `weighbridge`. Each has `register(app)`; heavy imports stay inside the functions."""
