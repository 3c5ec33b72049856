"""The node room: the machine, its GPUs and how they are linked, telemetry, and what a checkpoint really holds."""

from flows.node.islands import tensor_parallel_warning
from flows.node.read import read_node

__all__ = ["read_node", "tensor_parallel_warning"]
