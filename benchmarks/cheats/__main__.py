"""`python -m benchmarks.cheats`: what other clients report on streams whose truth is known."""

import sys

from benchmarks.cheats.peers import main

if __name__ == "__main__":
    sys.exit(main())
