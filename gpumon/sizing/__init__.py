"""From targets to instances, GPUs and servers: pure formulas over what was measured, imported or typed."""
