#!/bin/bash
# Stands for the entrypoint of nvcr.io/nvidia/tensorflow:18.01-py2: the banner, the notices, then the command.
set -e
cat <<EOF

================
== TensorFlow ==
================

NVIDIA Release ${NVIDIA_TENSORFLOW_VERSION} (build ${NVIDIA_BUILD_ID})

Container image Copyright (c) 2017, NVIDIA CORPORATION.  All rights reserved.
Copyright 2017 The TensorFlow Authors.  All rights reserved.

Various files include modifications (c) NVIDIA CORPORATION.  All rights reserved.
NVIDIA modifications are covered by the license terms that apply to the underlying project or file.
EOF

if [[ ! -e /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 ]] || ! command -v nvidia-smi >/dev/null; then
    echo
    echo "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available."
    echo "   Use 'nvidia-docker run' to start this container; see"
    echo "   https://github.com/NVIDIA/nvidia-docker/wiki/nvidia-docker ."
fi

if [[ "$(df -k /dev/shm | tail -n 1 | awk '{print $2}')" == "65536" ]]; then
    echo
    echo "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be"
    echo "   insufficient for TensorFlow.  NVIDIA recommends the use of the following flags:"
    echo "   nvidia-docker run --shm-size=1g --ulimit memlock=-1 --ulimit stack=67108864 ..."
fi

echo

if [[ $# -eq 0 ]]; then
    exec "/bin/bash"
else
    exec "$@"
fi
