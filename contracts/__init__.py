"""What every room agrees on: records, columns, screens, errors. Knows no flow, no Prefect, no HTTP."""
