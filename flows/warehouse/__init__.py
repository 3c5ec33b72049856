"""The warehouse: from sealed raw to judged, published marts.

`build_warehouse(raw, warehouse)` is the whole of it: scan, digest, load, dbt, contract, swap.
"""

from __future__ import annotations

from flows.warehouse.build import DATABASE, BuildResult, build_warehouse

__all__ = ["DATABASE", "BuildResult", "build_warehouse"]
