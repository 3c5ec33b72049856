"""One file per workload: from a seed to planned requests, and how an answer is graded. Knows no engine and no HTTP."""
