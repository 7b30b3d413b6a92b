"""What the CUDA driver reports about a card. Like the frameworks it counts cards by CUDA_VISIBLE_DEVICES, and unlike
NVML it knows the memory size of MIG devices and of cards that share the CPU's memory. These calls take no memory on the
card."""
from __future__ import absolute_import, division, print_function

import ctypes
import os

LIBRARY = "libcuda.so.1"
INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html


def is_installed():
    return library() is not None


def total_bytes(card):
    """Return the memory of the card with this index; None if the driver is missing or does not tell."""
    return answer(card, ctypes.c_size_t(), lambda cuda, told, device: cuda.cuDeviceTotalMem_v2(told, device))


def is_integrated(card):
    """Return whether the card uses the machine's memory; False if the driver is missing or does not tell."""
    return bool(answer(card, ctypes.c_int(), lambda cuda, told, device: cuda.cuDeviceGetAttribute(
        told, INTEGRATED, device)))


def leaves_memory(card):
    """Return whether TensorFlow must take the card's memory as it needs it, not all at once: the card uses the
    machine's memory, or TensorFlow's own variable says so, which its first releases do not read."""
    return os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true" or is_integrated(card)


def answer(card, told, ask):
    device, cuda = ctypes.c_int(), library()
    if cuda is None:
        return None
    failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), card) or ask(cuda, ctypes.byref(told), device)
    return None if failed else told.value


def library():
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None
