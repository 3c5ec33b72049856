"""What is written from contracts: one module a family of files. See contracts.generate."""
