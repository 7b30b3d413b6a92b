"""Measures a run while it lasts: GPUs (NVML), the host, the container, and the sampler that writes it all down."""
