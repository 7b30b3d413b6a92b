"""How much memory a card has, as the CUDA driver says: it counts cards as TensorFlow does, by CUDA_VISIBLE_DEVICES, and
knows the size of MIG's parts and of memory that is shared with the CPU, which NVML does not."""
import ctypes

LIBRARY = "libcuda.so.1"


def total_bytes(card):
    """Return the memory of the card with this index; None if the driver is missing or does not tell."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    device, total = ctypes.c_int(), ctypes.c_size_t()
    failed = (cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), card)
              or cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device))
    return None if failed else total.value
