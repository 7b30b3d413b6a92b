#!/bin/sh
# A stand-in for nvidia-smi: prints the state file of the stand-in NVML library. Shell builtins only, so that it runs in busybox, too.
#   nvidia-smi | nvidia-smi -L | nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,compute_cap,... --format=csv[,noheader][,nounits]
state=${NGCDL_NVML_STATE:-/run/ngcdl-lab/nvml.state}

value() {  # KEY: print its value; fail if there is no such line
    while IFS= read -r line; do
        case $line in "$1="*) printf '%s' "${line#*=}"; return 0 ;; esac
    done < "$state"
    return 1
}

# What nvmlInit returns: 9 without a state file, else CODE of a line fail.Init=CODE. Messages and exit codes are those of the real program.
code=0
if [ -r "$state" ]; then code=$(value fail.Init || printf 0); else code=9; fi
case $code in
    0) ;;
    9) printf "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n"; exit 9 ;;
    18) printf 'Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %s\n' "$(value nvml || value driver)"; exit 18 ;;
    4) printf 'Failed to initialize NVML: Insufficient Permissions\n'; exit 4 ;;
    *) printf 'Failed to initialize NVML: Unknown Error\n'; exit "$((code > 255 ? 255 : code))" ;;
esac

query='' format='' list=''
for word; do
    case $word in
        -L | --list-gpus) list=1 ;;
        --query-gpu=*) query=${word#*=} ;;
        --format=*) format=${word#*=} ;;
    esac
done

field() {  # CARD NAME: one column of --query-gpu
    case $2 in
        index) printf '%s' "$1" ;;
        name | gpu_name) value "gpu$1.name" ;;
        uuid | gpu_uuid) value "gpu$1.uuid" ;;
        driver_version) value driver ;;
        compute_cap) value "gpu$1.cc" ;;
        pci.bus_id | gpu_bus_id) value "gpu$1.pci" ;;
        memory.total) bytes=$(value "gpu$1.memory_total") && printf '%s%s' "$((bytes / 1048576))" "${units:+ MiB}" ;;
        memory.used) bytes=$(value "gpu$1.memory_used") && printf '%s%s' "$((bytes / 1048576))" "${units:+ MiB}" ;;
        utilization.gpu) percent=$(value "gpu$1.utilization") && printf '%s%s' "$percent" "${units:+ %}" ;;
        temperature.gpu) value "gpu$1.temperature" ;;
        *) printf '[N/A]' ;;
    esac || printf '[N/A]'
}

units=1
case $format in *nounits*) units='' ;; esac
case $query:$format in :* | *:*noheader*) ;; *) printf '%s\n' "$query" ;; esac

card=0 found=0
if [ -z "$list$query" ]; then
    printf '+-----------------------------------------------------------------------------+\n'
    printf '| NVIDIA-SMI %-12s Driver Version: %-12s CUDA Version: %-8s |\n' "$(value driver)" "$(value driver)" \
        "$(c=$(value cuda); printf '%s.%s' "$((c / 1000))" "$((c % 1000 / 10))")"
    printf '+-----------------------------------------------------------------------------+\n'
fi
while [ "$card" -lt 64 ]; do
    if name=$(value "gpu$card.name"); then
        found=1
        if [ -n "$query" ]; then
            row='' rest=$query
            while [ -n "$rest" ]; do
                column=${rest%%,*}
                case $rest in *,*) rest=${rest#*,} ;; *) rest='' ;; esac
                row="$row${row:+, }$(field "$card" "$column")"
            done
            printf '%s\n' "$row"
        elif [ -n "$list" ]; then
            printf 'GPU %s: %s (UUID: %s)\n' "$card" "$name" "$(value "gpu$card.uuid")"
        else
            printf '| %3s  %-32s %12s  %20s |\n' "$card" "$name" "$(value "gpu$card.pci")" \
                "$(field "$card" memory.used) / $(field "$card" memory.total)"
        fi
        card=$((card + 1))
    else
        break
    fi
done
if [ "$found" = 0 ]; then printf 'No devices were found\n'; exit 6; fi
if [ -z "$list$query" ]; then printf '+-----------------------------------------------------------------------------+\n'; fi
