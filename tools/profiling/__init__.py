"""NVIDIA's own tools on one version: Nsight Compute for what limits it, compute-sanitizer for what it does wrong."""
