"""Writes everything that follows from the dictionary, the records and the screens: `python -m contracts.generate`.

`--check` writes nothing and names what is out of date (exit 1); a test runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from contracts.generated import marts, screens_page, seeds, staging

ROOT = Path(__file__).resolve().parent.parent


def outputs() -> dict[str, str]:
    """Path under the project -> the content that it must have."""
    files: dict[str, str] = {}
    files |= staging.outputs()
    files |= seeds.outputs()
    files |= marts.outputs()
    files |= screens_page.outputs()
    return files


def main(arguments: list[str]) -> int:
    """Write the files, or with --check compare them; the exit code."""
    stale = []
    for path, content in outputs().items():
        target = ROOT / path
        if target.exists() and target.read_text(encoding="utf-8") == content:
            continue
        stale.append(path)
        if "--check" not in arguments:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
    for path in stale:
        print(path)  # noqa: T201
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
