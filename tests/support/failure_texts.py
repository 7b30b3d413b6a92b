"""What famous failures print, by the names of their rows in failures.toml."""

from __future__ import annotations

HOOK = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: error running prestart hook #0: exit status 1, "
    "stdout: , stderr: Auto-detected mode as 'legacy' "
)
BANNER = """
=============
== PyTorch ==
=============

NVIDIA Release 25.03 (build 148941828)
PyTorch Version 2.7.0a0+7c8ec84
Container image Copyright (c) 2025, NVIDIA CORPORATION & AFFILIATES. All rights reserved.

Various files include modifications (c) NVIDIA CORPORATION & AFFILIATES.  All rights reserved.

NOTE: CUDA Forward Compatibility mode ENABLED.
  Using CUDA 12.8 driver version 570.124.06 with kernel driver version 535.104.05.
  See https://docs.nvidia.com/deploy/cuda-compatibility/ for details.

NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be
   insufficient for PyTorch.  NVIDIA recommends the use of the following flags:
   docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ...

NOTE: MOFED driver for multi-node communication was not detected.
      Multi-node communication performance may be reduced.
"""
NO_DRIVER = """
WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.
   Use the NVIDIA Container Toolkit to start this container with GPU support; see
"""
NO_CUDA = "ERROR: The NVIDIA Driver is present, but CUDA failed to initialize.  GPU functionality will not be\n"
# name -> texts as users paste them, from the row's source
EXAMPLES = {
    "no-gpu-driver-in-docker": [
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found",
    ],
    "runtime-unknown": ["unknown or invalid runtime name: nvidia", "Unknown runtime specified nvidia"],
    "hook-called-directly": [
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not "
        "supported. Please use the NVIDIA Container Runtime (e.g. specify the --runtime=nvidia flag) instead: unknown"
    ],
    "cdi-off": ['could not select device driver "cdi" with capabilities: []'],
    "cdi-devices-unresolvable": ["CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all"],
    "gpu-not-found-by-runtime": [
        "error modifying OCI spec: failed to inject CDI devices: unresolvable CDI devices runtime.nvidia.com/gpu=all",
        HOOK + "nvidia-container-cli: device error: 2: unknown device: unknown",
    ],
    "ptxas-too-old": ["ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"],
    "enroot-unauthorized": ["pyxis: [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized"],
    "user-namespace-forbidden": [
        "ERROR  : Failed to create user namespace: Permission denied",
        "ERROR  : Could not write info to setgroups: Permission denied",
        "enroot-nsenter: failed to create user namespace: Operation not permitted",
    ],
    "ldconfig-failed": [HOOK + "nvidia-container-cli: ldcache error: process /sbin/ldconfig terminated with signal 9"],
    "no-driver-at-the-engine": [
        HOOK + "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
        "object file: no such file or directory: unknown",
        HOOK + "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    ],
    "requirement-unsatisfied": [
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a "
        "newer version, or use an earlier cuda container: unknown"
    ],
    "claim-not-writable": [
        "ngcdl: on the claim cifar the user 1000:1000 can't make /ngcdl-claim/ngcdl-runs/20261121-192252-true-beefca. "
        "Whose folders these are:\ndrwxr-xr-x 2 0 0 4096 Nov 21 19:22 /ngcdl-claim"
    ],
    "driver-mismatch": [
        "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 565.57",
    ],
    "hook-forbidden": [
        HOOK + "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device "
        "filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",
        HOOK + "nvidia-container-cli: mount error: open failed: /sys/fs/cgroup/devices/user.slice/devices.allow: "
        "permission denied: unknown.",
    ],
    "hook-without-cgroups-2": [HOOK + "nvidia-container-cli: container error: cgroup subsystem devices not found"],
    "gpu-busy": ["CUDA-capable device(s) is/are busy or unavailable", "CUDA-capable devices are busy or unavailable"],
    "snap-confines-exec": ["exec /sbin/docker-init: operation not permitted"],
    "driver-times-out": [
        HOOK + "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown.",
        "nvidia-container-cli: initialization error: driver error: timed out",
    ],
    "driver-files-in-image": [
        "nvidia-container-cli: mount error: file creation failed: /var/lib/docker/overlay2/1f/merged/usr/lib/"
        "x86_64-linux-gnu/libnvidia-ml.so.1: file exists: unknown"
    ],
    "gpu-blocked": ["Failed to initialize NVML: GPU access blocked by the operating system"],
    "gpu-taken-away": ["Failed to initialize NVML: Unknown Error"],
    "nvml-permissions": [
        "Failed to initialize NVML: Insufficient Permissions",
        HOOK + "nvidia-container-cli: initialization error: nvml error: insufficient permissions: unknown",
    ],
    "gpu-lost": [
        "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover",
        "Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error",
    ],
    "xid": ["NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: Shader Program Header 11 Error"],
    "gpu-memory-broken": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"],
    "no-kernel-image": [
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid",
    ],
    "ptx-not-for-this-card": [
        "W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40] "
        "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
    ],
    "gpu-not-for-this-pytorch": [
        "UserWarning:\nNVIDIA GeForce RTX 5060 Ti with CUDA capability sm_120 is not compatible with the current "
        "PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80."
    ],
    "gpu-not-for-this-image": [
        "WARNING: Detected NVIDIA NVIDIA GeForce RTX 4090 GPU, which is not yet supported in this version of the "
        "container\nERROR: No supported GPU(s) detected to run this container"
    ],
    "driver-insufficient": [
        "Check failed: error == cudaSuccess (35 vs. 0)  CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
    ],
    "compatibility-unavailable": [
        "ERROR: This container was built for NVIDIA Driver Release 570.86 or later, but\n       version 470.57.02 was "
        "detected and compatibility mode is UNAVAILABLE.\n\n       [[System has unsupported display driver / cuda "
        "driver combination (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) cuInit()=803]]"
    ],
    "forward-compatibility-refused": [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non "
        "supported HW"
    ],
    "ptx-unsupported": ["CUDA runtime error: the provided PTX was compiled with an unsupported toolchain."],
    "no-avx": [
        "Illegal instruction (core dumped)",
        "2018-01-17 08:21:49.120154: F tensorflow/core/platform/cpu_feature_guard.cc:35] The TensorFlow library was "
        "compiled to use AVX2 instructions, but these aren't available on your machine.\nAborted (core dumped)",
        "ERROR: This container was built for CPUs supporting at least the AVX instruction set, but\n       the CPU ",
    ],
    "fabric-manager": [
        "Error 802: system not yet initialized (Triggered internally at",
        "CUDA_ERROR_SYSTEM_NOT_READY",
        NO_CUDA + "   [[ System not yet initialized (error 802) ]]",
    ],
    "driver-not-detected": [NO_DRIVER],
    "no-driver-in-container": [
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
        "driver from http://www.nvidia.com/Download/index.aspx",
        "/server: error while loading shared libraries: libcuda.so.1: cannot open shared object file: No such file",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest NVIDIA driver is installed and running.",
    ],
    "libcuda-missing": [
        "Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such "
        "file or directory; LD_LIBRARY_PATH: /usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "dso_loader.cc:105] Couldn't open CUDA library libcuda.so.1. LD_LIBRARY_PATH: /usr",
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display",
        "stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: UNKNOWN ERROR (303)",
        "torch/cuda/__init__.py:52: UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please",
    ],
    "no-cuda-device": ["failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"],
    "cuda-unknown-error": [
        "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, "
        "e.g. changing env variable CUDA_VISIBLE_DEVICES after program start."
    ],
    "driver-library-mismatch": [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / "
        "cuda driver combination",
        "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver",
        NO_CUDA + "   [[ System has unsupported display driver / cuda driver combination (error 803) ]]",
    ],
    "gpu-out-of-memory": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 3.94 G",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[2304,3]",
        "tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.",
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 12582912 bytes.",
        "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\nRuntimeError: NCCL Error 1: unhandled cuda error",
    ],
    "host-out-of-memory": [
        "RuntimeError: DataLoader worker (pid 60087) is killed by signal: Killed.",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 93.1 GiB for an array with shape (50000, 500)",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)",
        "Memory cgroup out of memory: Killed process 15617 (python3) total-vm:11892kB, anon-rss:4292kB",
        "out of memory: the kernel killed it",
    ],
    "cublas-failed": [
        "E tensorflow/cuda/cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
        "tensorflow.python.framework.errors_impl.InternalError: 2 root error(s) found.\n  (0) Internal: Blas GEMM "
        "launch failed : a.shape=(15998, 494), b.shape=(494, 2048), m=15998, n=2048, k=494",
        "InternalError (see above for traceback): Blas xGEMM launch failed : a.shape=[1,128,2304]",
        "InternalError: Blas SGEMM launch failed : m=65536, n=256, k=64",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
    "slurm-out-of-memory": [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM "
        "Killed.\nsrun: error: sdumont6156: task 0: Out Of Memory",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup. Some of your processes may have "
        "been killed by the cgroup out-of-memory handler.",
    ],
    "shm-too-small": [
        "RuntimeError: DataLoader worker (pid 54321) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "RuntimeError: unable to write to file </torch_18692_1954506624>: No space left on device (28)",
    ],
    "shm-full": [
        "dd: error writing '/dev/shm/x': No space left on device\n1025+0 records in\n1024+0 records out",
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f2a3b4c'",
    ],
    "bus-error": ["Fatal Python error: Bus error\n\nCurrent thread 0x00007f5a (most recent call first):"],
    "shm-default": [BANNER + "Bus error (core dumped)\n"],
    "nccl-shm": [
        "include/shm.h:28 NCCL WARN Call to posix_fallocate failed: No space left on device\nNCCL WARN "
        "Error while creating shared memory segment nccl-shm-recv-250a7cc850ba9298-0-1-3 (size 9637888)",
        "misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes\n"
        "RuntimeError: NCCL Error 2: unhandled system error",
    ],
    "nccl-system-error": ["RuntimeError: NCCL Error 2: unhandled system error"],
    "cudnn-not-initialised": [
        "UnknownError (see above for traceback): Failed to get convolution algorithm. This is probably because cuDNN "
        "failed to initialize, so try looking to see if a warning log message was printed above.",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cuda_driver.cc:924] failed to allocate 1.51G (1617277696 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY",
    ],
    "rlimit-forbidden": [
        "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown",
        "crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted",
    ],
    "disk-full": [
        "write /var/lib/docker/tmp/GetImageBlob123: no space left on device",
        "OSError: [Errno 28] No space left on device: '/ngcdl/run/checkpoints'",
        "OSError: [Errno 122] Disk quota exceeded: '/ngcdl/run/checkpoints'",
    ],
    "podman-init-missing": [
        "container create: container-init binary not found on the host: stat /usr/libexec/podman/catatonit: no such"
    ],
    "docker-init-missing": ['Error response from daemon: exec: "docker-init": executable file not found in $PATH'],
    "mount-forbidden": [
        "error while creating mount source path '/mnt/nfsshare/dir': mkdir /mnt/nfsshare/dir: permission denied.",
        'invalid mount config for type "bind": stat /home/u/.local/state/ngcdl/runs/x: permission denied',
        'runc create failed: error mounting "/nfs/u/x" to rootfs at "/ngcdl/run": permission denied: unknown',
    ],
    "wrong-processor": [
        "exec /opt/nvidia/nvidia_entrypoint.sh: exec format error",
        'standard_init_linux.go:211: exec user process caused "exec format error"',
        "[FATAL tini (7)] exec /usr/bin/python failed: Exec format error",
    ],
    "no-matching-manifest": ["no matching manifest for linux/arm64/v8 in the manifest list entries"],
    "manifest-unknown": ["manifest for nvcr.io/nvidia/nemo:v1.0.0b2 not found: manifest unknown: manifest unknown"],
    "certificate-unknown": [
        "Get https://registry-1.docker.io/v2/: x509: certificate signed by unknown authority",
        "SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer",
    ],
    "rate-limited": ["toomanyrequests: You have reached your pull rate limit."],
    "port-taken": [
        "driver failed programming external connectivity: Bind for 0.0.0.0:8888 failed: port is already allocated",
        "OSError: [Errno 98] Address already in use",
    ],
    "user-without-name": ["KeyError: 'getpwuid(): uid not found: 1042'"],
    "group-without-name": ["groups: cannot find name for group ID 993"],
    "nvidia-smi-missing": [
        "[FATAL tini (7)] exec nvidia-smi failed: No such file or directory",
        "/usr/local/bin/nvidia_entrypoint.sh: line 38: exec: nvidia-smi: not found",
        'unable to start container process: exec: "nvidia-smi": executable file not found in $PATH: unknown',
        "crun: executable file `nvidia-smi` not found in $PATH: No such file or directory",
    ],
    "command-missing": [
        "[FATAL tini (7)] exec pyhton failed: No such file or directory",
        "ERROR (catatonit:2): failed to exec pid1: No such file or directory",
        "/opt/nvidia/nvidia_entrypoint.sh: line 67: exec: pyhton: not found",
    ],
    "command-not-executable": [
        "[FATAL tini (7)] exec /etc/passwd failed: Permission denied",
        "ERROR (catatonit:2): failed to exec pid1: Permission denied",
        "/opt/nvidia/nvidia_entrypoint.sh: line 67: exec: .: cannot execute: Is a directory",
        "/opt/nvidia/nvidia_entrypoint.sh: line 46: exec: /work/train.py: cannot execute: Permission denied",
    ],
    "python-package-missing": [
        "Traceback (most recent call last):\n  File \"x.py\", line 1\nModuleNotFoundError: No module named 'timm'",
        "ImportError: No module named torch",
        "/usr/bin/python: No module named torchrun",
    ],
    "runtime-missing": [
        "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/log.json: no such file "
        "or directory): fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown.",
        'unable to retrieve OCI runtime error: exec: "nvidia-container-runtime": executable file not found in $PATH',
        "ERROR: inject NVIDIA hook: stat /usr/bin/nvidia-container-runtime-hook: no such file or directory",
    ],
    "wsl-without-gpu": [
        HOOK + "nvidia-container-cli: initialization error: WSL environment detected but no adapters were found"
    ],
    "driver-unusable": [
        HOOK + "nvidia-container-cli: detection error: nvml error: unknown error: unknown.",
        HOOK + "nvidia-container-cli: detection error: open failed: /usr/lib/x86_64-linux-gnu/libnvidia-tls.so.470.86",
        HOOK + "nvidia-container-cli: initialization error: cuda error: no cuda-capable device is detected",
        HOOK + "nvidia-container-cli: initialization error: driver error: failed to process request",
    ],
    "cuda-not-initialised": [NO_CUDA + "   [[ Initialization error (error 3) ]]"],
    "nvcc-architecture": ["nvcc fatal   : Unsupported gpu architecture 'compute_89'"],
    "no-such-gpu": ["    torch._C._cuda_setDevice(device)\nRuntimeError: CUDA error: invalid device ordinal"],
    "pytorch-without-gpu": [
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If",
        "AssertionError: Torch not compiled with CUDA enabled",
    ],
    "gpu-code-failed": [
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "  what():  CUDA error: an illegal instruction was encountered",
        "Error polling for event status: failed to query event: CUDA_ERROR_ILLEGAL_INSTRUCTION",
    ],
    "nccl-duplicate-gpu": [
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : "
        "rank 0 and rank 1 both on CUDA device 1000"
    ],
    "nccl-network": [
        "include/socket.h:390 NCCL WARN Connect to 10.38.10.112<21724> failed : Connection refused\nRuntimeError: NCCL "
        "error in: ProcessGroupNCCL.cpp:410, unhandled system error, NCCL version 2.4.8",
        "NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115",
        "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found",
        "DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (172.17.0.9, 1).",
    ],
    "too-many-open-files": [
        "RuntimeError: received 0 items of ancdata",
        "OSError: [Errno 24] Too many open files: '/data/x.jpg'",
    ],
    "inotify-limit": ["Failed to watch directory: inotify_add_watch /sys/fs/cgroup/pids: no space left on device"],
    "not-writable": [
        "PermissionError: [Errno 13] Permission denied: '/workspace/outputs/2DBox_CXR_demo.npz'",
        "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/local/lib/python3'",
        "OSError: [Errno 30] Read-only file system: '/root/.cache'",
    ],
    "certificate-expired": [
        "URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"
    ],
    "path-not-in-container": [
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/data/train.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: '../data/train.csv'",
        "python: can't open file '/home/myname/kubectl/ex_docker/ex1/main.py': [Errno 2] No such file or directory",
    ],
    "module-shadowed": [
        "AttributeError: partially initialized module 'torch' has no attribute 'zeros' (most likely due to a circular "
        "import)",
        "ImportError: cannot import name 'stack' from partially initialized module 'torch' (most likely due to a "
        "circular import)",
        "AttributeError: module 'random' has no attribute 'randint' (consider renaming '/home/me/random.py' since it "
        "has the same name as the standard library module named 'random' and prevents importing that standard library "
        "module)",
    ],
    "segmentation-fault": ["Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb899f39700"],
    "written-for-an-older-framework": [
        "AttributeError: module 'tensorflow' has no attribute 'contrib'",
        "ModuleNotFoundError: No module named 'tensorflow.contrib'",
        "ModuleNotFoundError: No module named 'torch._six'",
    ],
    "built-for-another-pytorch": [
        "ImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN2at4_ops15sum_IntList",
        "RuntimeError: operator torchvision::nms does not exist",
        "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.1).",
    ],
    "cuda-libraries-mixed": [
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8, version libnvJitLink.so.12",
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.",
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared",
        "ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory",
    ],
    "numpy-of-another-version": [
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.2 as it may crash.",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
    ],
    "saved-by-numpy-2": ["ModuleNotFoundError: No module named 'numpy._core'"],
    "protobuf-too-new": ["TypeError: Descriptors cannot not be created directly."],
    "opencv-without-libgl": ["ImportError: libGL.so.1: cannot open shared object file: No such file or directory"],
    "weights-only": ["_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value"],
    "c-compiler-missing": ["RuntimeError: Failed to find C compiler. Please specify via CC environment variable."],
    "libc-too-old": ["ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by x)"],
    "libdevice-missing": ["InternalError: libdevice not found at ./libdevice.10.bc [Op:__some_op]"],
}
