#!/bin/bash
# Stands for the entrypoint of nvcr.io/nvidia/pytorch:26.07-py3: the banner, the driver and SHMEM checks, then the command.
cat <<EOF

=============
== PyTorch ==
=============

NVIDIA Release ${NVIDIA_PYTORCH_VERSION} (build ${NVIDIA_BUILD_ID})
PyTorch Version ${PYTORCH_VERSION}
Container image Copyright (c) 2026, NVIDIA CORPORATION & AFFILIATES. All rights reserved.
Various files include modifications (c) NVIDIA CORPORATION & AFFILIATES.  All rights reserved.
EOF

if [[ "${NVIDIA_CPU_ONLY:-0}" != 1 ]]; then
    if [[ ! -e /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 ]] || ! command -v nvidia-smi >/dev/null; then
        echo
        echo "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available."
        echo "   Use the NVIDIA Container Toolkit to start this container with GPU support; see"
        echo "   https://docs.nvidia.com/datacenter/cloud-native/ ."
    else
        driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
        if [[ -n "$driver" && "${driver%%.*}" =~ ^[0-9]+$ && "${driver%%.*}" -lt 580 ]]; then
            echo
            echo "ERROR: This container was built for NVIDIA Driver Release ${CUDA_DRIVER_VERSION%.*} or later, but"
            echo "   version ${driver} was detected and compatibility mode is UNAVAILABLE."
            echo
            echo "   [[]]"
            sleep 2
        fi
    fi
fi

if [[ "$(df -k /dev/shm | tail -n 1 | awk '{print $2}')" == "65536" ]]; then
    echo
    echo "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be"
    echo "   insufficient for PyTorch.  NVIDIA recommends the use of the following flags:"
    echo "   docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ..."
fi

echo

if [[ $# -eq 0 ]]; then
    exec "/bin/bash"
else
    exec "$@"
fi
