"""What the CUDA driver says of a card: it counts cards as the frameworks do, by CUDA_VISIBLE_DEVICES, and knows the
size of MIG's parts and of memory that is shared with the CPU, which NVML does not. Asking takes no memory there."""
from __future__ import absolute_import, division, print_function

import ctypes

LIBRARY = "libcuda.so.1"
INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html


def total_bytes(card):
    """Return the memory of the card with this index; None if the driver is missing or does not tell."""
    return answer(card, ctypes.c_size_t(), lambda cuda, told, device: cuda.cuDeviceTotalMem_v2(told, device))


def is_integrated(card):
    """Is the machine's memory the card's? No, if the driver is missing or does not tell."""
    return bool(answer(card, ctypes.c_int(), lambda cuda, told, device: cuda.cuDeviceGetAttribute(
        told, INTEGRATED, device)))


def answer(card, told, ask):
    device = ctypes.c_int()
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), card) or ask(cuda, ctypes.byref(told), device)
    return None if failed else told.value
