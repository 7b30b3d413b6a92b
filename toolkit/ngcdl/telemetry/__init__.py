"""What is measured while a run goes on: GPUs (NVML), the host, the container, and the thread that writes it down."""
