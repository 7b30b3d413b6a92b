/* A stand-in for NVIDIA's management library: every call reads the cards' state from a text file.
 *
 *     gcc -shared -fPIC -O2 -o libnvidia-ml.so.1 nvml.c
 *     NGCDL_NVML_STATE=nvml.state LD_LIBRARY_PATH=. python ...
 *
 * The file (default /run/ngcdl-lab/nvml.state) holds key=value lines; # begins a comment. Replace it by rename, so that
 * no reader sees half of it. nvml.state beside this file is an example. The number of cards follows from the highest
 * gpuN.name. A call whose key is missing returns NVML_ERROR_NOT_SUPPORTED (3). Without a file the driver is "not
 * loaded" (9). processes=PID:BYTES,... (- for BYTES: not available); an empty list is an idle card;
 * graphics_processes likewise, and mps_processes: clients of the MPS server that is among processes.
 * gpuN.gpm=1 is a card with performance monitoring, whose metrics are gpuN.gpm_sm, gpm_occupancy, gpm_tensor and gpm_dram
 * in percent (12.5, nan), or code:N, which is the metric's own return code; ngcdl_gpm_samples counts what is not freed.
 * If gpuN.mig=1, gpuN.migM.uuid=MIG-... defines MIG device M (0 to 6) of the card, with all of its own keys.
 *
 * Faults, where CALL is a function's name without nvml (and optionally without _v2, _v3); Init covers InitWithFlags:
 *     fail.CALL=CODE            return this code            fail_after.CALL=N:CODE    after N calls in this process
 *     hang.CALL=1               block while the line is there
 * and each of them for one card: fail.gpu0.CALL=CODE, or MIG device: fail.gpu0.mig1.CALL=CODE. -DNGCDL_OLD_DRIVER omits
 * what drivers before 2018 lack; -DNGCDL_WIDE_RECORDS makes lists of processes as drivers from 535.43 to 535.86 do.
 * -DNGCDL_STILL reads the file and each number only once, and ignores faults, to measure what the caller costs.
 *
 * Only libc calls older than glibc 2.15 are used, because it is also mounted into old images; hence no strtoull, which
 * a newer compiler binds to __isoc23_strtoull, and no fstat.
 * Interface: https://docs.nvidia.com/deploy/nvml-api/
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9 };
enum { STATE_BYTES = 65536, CARDS = 64, SLICES = 7, DEVICES = CARDS + CARDS * SLICES };

typedef unsigned long long u64;
typedef struct card *nvmlDevice_t;
#ifdef NGCDL_STILL
typedef struct { const char *text; } State;
#else
typedef struct { char text[STATE_BYTES]; } State;
#endif

static struct card { char unused; } devices[DEVICES]; /* the cards, then the MIG devices of each */
static int started;

/* ---- the state file ---- */

static int read_file(char *text) {
    const char *path = getenv("NGCDL_NVML_STATE");
    int file = open(path && *path ? path : "/run/ngcdl-lab/nvml.state", O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n;
    if (file < 0) return 0;
    while (have < STATE_BYTES - 1 && (n = read(file, text + have, STATE_BYTES - 1 - have)) > 0) have += (size_t)n;
    close(file);
    text[have] = 0;
    return 1;
}

static int load(State *state) {
#ifdef NGCDL_STILL
    static char kept[STATE_BYTES];
    if (!*kept && !read_file(kept)) return 0;
    state->text = kept;
    return 1;
#else
    return read_file(state->text);
#endif
}

/* Copy the value of a key; return 0 if there is no such line. */
static int text_of(const State *state, const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    const char *line = state->text, *end;
    for (; *line; line = *end ? end + 1 : end) {
        end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        if (strncmp(line, key, length) || line[length] != '=') continue;
        line += length + 1;
        length = (size_t)(end - line);
        while (length && (line[length - 1] == '\r' || line[length - 1] == ' ')) length--;
        if (length >= size) length = size - 1;
        memcpy(value, line, length);
        value[length] = 0;
        return 1;
    }
    return 0;
}

static u64 number(const char **text) {
    u64 value = 0;
    int minus = **text == '-';
    if (minus) ++*text;
    for (; **text >= '0' && **text <= '9'; ++*text) value = value * 10 + (u64)(**text - '0');
    return minus ? 0 - value : value;
}

static int number_of(const State *state, const char *key, u64 *value) {
    char text[64];
    const char *at = text;
    if (!text_of(state, key, text, sizeof text) || !*text) return 0;
    *value = number(&at);
    return 1;
}

static long card_of(long device) { return device < CARDS ? device : (device - CARDS) / SLICES; }
static long index_of(long device) { return device < CARDS ? device : (device - CARDS) % SLICES; }

/* Write a device's name as used in the file: gpu0, gpu0.mig1. */
static const char *named(long device, char *name, size_t size) {
    if (device < CARDS) snprintf(name, size, "gpu%ld", device);
    else snprintf(name, size, "gpu%ld.mig%ld", card_of(device), index_of(device));
    return name;
}

static int card_text(const State *state, long card, const char *key, char *value, size_t size) {
    char name[96], prefix[32];
    snprintf(name, sizeof name, "%s.%s", named(card, prefix, sizeof prefix), key);
    return text_of(state, name, value, size);
}

static int card_number(const State *state, long card, const char *key, u64 *value) {
    char name[96], prefix[32];
#ifdef NGCDL_STILL
    static struct { const char *key; u64 value; int found; } all[DEVICES][32], *kept; /* by the key's address */
    for (kept = all[card]; kept->key && kept->key != key; kept++) {}
    if (!kept->key) {
        snprintf(name, sizeof name, "%s.%s", named(card, prefix, sizeof prefix), key);
        kept->found = number_of(state, name, &kept->value);
        kept->key = key;
    }
    *value = kept->value;
    return kept->found;
#endif
    snprintf(name, sizeof name, "%s.%s", named(card, prefix, sizeof prefix), key);
    return number_of(state, name, value);
}

static long card_count(const State *state) {
    char name[128];
    long card = CARDS;
#ifdef NGCDL_STILL
    static long counted;
    if (counted) return counted;
    while (card > 0 && !card_text(state, card - 1, "name", name, sizeof name)) card--;
    return counted = card;
#endif
    while (card > 0 && !card_text(state, card - 1, "name", name, sizeof name)) card--;
    return card;
}

/* ---- faults ---- */

/* Look up a fault by the call's name, by the name without its version, and by either of them for one card. */
static int fault(const State *state, const char *kind, const char *call, long card, char *value, size_t size) {
    char key[160], bare[80], prefix[32];
    char *version;
    snprintf(bare, sizeof bare, "%s", call);
    version = strstr(bare, "_v");
    if (version) *version = 0;
    if (!strcmp(bare, "InitWithFlags")) strcpy(bare, "Init");
    for (int one_card = 0; one_card < (card >= 0 ? 2 : 1); one_card++)
        for (int short_name = 0; short_name < 2; short_name++) {
            const char *name = short_name ? bare : call;
            if (one_card) snprintf(key, sizeof key, "%s.%s.%s", kind, named(card, prefix, sizeof prefix), name);
            else snprintf(key, sizeof key, "%s.%s", kind, name);
            if (text_of(state, key, value, size)) return 1;
        }
    return 0;
}

/* Begin a call: load the state, then hang or fail as it says. `calls` counts this function in this process. */
static int begin(State *state, const char *call, long card, int *calls) {
    char value[64];
    const char *at = value;
    int made = __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
    if (!load(state)) return NOT_LOADED;
#ifdef NGCDL_STILL
    return OK;
#endif
    while (fault(state, "hang", call, card, value, sizeof value) && strcmp(value, "0")) {
        usleep(20000);
        if (!load(state)) return NOT_LOADED;
    }
    if (fault(state, "fail", call, card, value, sizeof value)) return (int)number(&at);
    if (fault(state, "fail_after", call, card, value, sizeof value)) {
        u64 good = number(&at);
        if (*at == ':' && (u64)made > good) { at++; return (int)number(&at); }
    }
    return OK;
}

#define BEGIN(call, card)                                                    \
    State state;                                                             \
    static int calls;                                                        \
    int code = begin(&state, call, card, &calls);                            \
    if (code) return code;                                                   \
    if (!__atomic_load_n(&started, __ATOMIC_RELAXED)) return UNINITIALIZED

static long number_of_card(nvmlDevice_t device) {
    return device >= devices && device < devices + DEVICES ? (long)(device - devices) : -1;
}

/* A call on one card; a card removed from the file is lost (15). */
#define BEGIN_CARD(call)                                                     \
    long card = number_of_card(device);                                      \
    if (card < 0) return INVALID;                                            \
    BEGIN(call, card);                                                       \
    if (card_of(card) >= card_count(&state)) return 15

static int give(const char *text, char *out, unsigned size) {
    if (!out) return INVALID;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

/* ---- start and end ---- */

static int start(const char *call) {
    State state;
    static int calls;
    int code = begin(&state, call, -1, &calls);
    if (!code) __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
    return code;
}

int nvmlInit_v2(void) { return start("Init_v2"); }
int nvmlInit(void) { return start("Init"); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return start("InitWithFlags"); }

int nvmlShutdown(void) {
    BEGIN("Shutdown", -1);
    __atomic_sub_fetch(&started, 1, __ATOMIC_RELAXED);
    return OK;
}

const char *nvmlErrorString(int code) {
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
        "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
        "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data", "ECC is not supported on vGPU",
        "Insufficient resources", "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready",
        "GPU not found", "Invalid state", "Reset type not supported"};
    return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code] : "Unknown Error";
}

/* ---- the driver ---- */

#define SYSTEM_TEXT(call, key)                                               \
    int nvml##call(char *out, unsigned size) {                               \
        char text[128];                                                      \
        BEGIN(#call, -1);                                                    \
        return text_of(&state, key, text, sizeof text) ? give(text, out, size) : NOT_SUPPORTED; \
    }
SYSTEM_TEXT(SystemGetDriverVersion, "driver")
SYSTEM_TEXT(SystemGetNVMLVersion, "nvml")

#define SYSTEM_CUDA(call)                                                    \
    int nvml##call(int *version) {                                           \
        u64 value;                                                           \
        BEGIN(#call, -1);                                                    \
        if (!number_of(&state, "cuda", &value)) return NOT_SUPPORTED;        \
        *version = (int)value;                                               \
        return OK;                                                           \
    }
SYSTEM_CUDA(SystemGetCudaDriverVersion)
#ifndef NGCDL_OLD_DRIVER
SYSTEM_CUDA(SystemGetCudaDriverVersion_v2)
#endif

/* ---- finding a card ---- */

#define COUNT(call)                                                          \
    int nvml##call(unsigned *count) {                                        \
        BEGIN(#call, -1);                                                    \
        *count = (unsigned)card_count(&state);                               \
        return OK;                                                           \
    }
COUNT(DeviceGetCount)
COUNT(DeviceGetCount_v2)

#define BY_INDEX(call)                                                       \
    int nvml##call(unsigned index, nvmlDevice_t *device) {                   \
        BEGIN(#call, index < CARDS ? (long)index : -1);                      \
        if ((long)index >= card_count(&state)) return INVALID;               \
        *device = &devices[index];                                           \
        return OK;                                                           \
    }
BY_INDEX(DeviceGetHandleByIndex)
BY_INDEX(DeviceGetHandleByIndex_v2)

#define BY_TEXT(call, key)                                                   \
    int nvml##call(const char *wanted, nvmlDevice_t *device) {               \
        char text[128];                                                      \
        BEGIN(#call, -1);                                                    \
        for (long one = 0, count = card_count(&state); one < DEVICES; one++) \
            if (card_of(one) < count && card_text(&state, one, key, text, sizeof text) && !strcasecmp(text, wanted)) { \
                *device = &devices[one];                                     \
                return OK;                                                   \
            }                                                                \
        return NOT_FOUND;                                                    \
    }
BY_TEXT(DeviceGetHandleByUUID, "uuid")
BY_TEXT(DeviceGetHandleByPciBusId_v2, "pci")

/* ---- what a card is ---- */

#define CARD_TEXT(call, key)                                                 \
    int nvml##call(nvmlDevice_t device, char *out, unsigned size) {          \
        char text[128];                                                      \
        BEGIN_CARD(#call);                                                   \
        return card_text(&state, card, key, text, sizeof text) ? give(text, out, size) : NOT_SUPPORTED; \
    }
CARD_TEXT(DeviceGetName, "name")
CARD_TEXT(DeviceGetUUID, "uuid")
CARD_TEXT(DeviceGetSerial, "serial")

#define CARD_NUMBER(call, type, key)                                         \
    int nvml##call(nvmlDevice_t device, type *out) {                         \
        u64 value;                                                           \
        BEGIN_CARD(#call);                                                   \
        if (!card_number(&state, card, key, &value)) return NOT_SUPPORTED;   \
        *out = (type)value;                                                  \
        return OK;                                                           \
    }
CARD_NUMBER(DeviceGetBrand, unsigned, "brand")
CARD_NUMBER(DeviceGetPowerUsage, unsigned, "power_mw")
CARD_NUMBER(DeviceGetEnforcedPowerLimit, unsigned, "power_limit_mw")
CARD_NUMBER(DeviceGetPowerManagementLimit, unsigned, "power_limit_mw")
CARD_NUMBER(DeviceGetPerformanceState, unsigned, "pstate")
CARD_NUMBER(DeviceGetPersistenceMode, unsigned, "persistence")
CARD_NUMBER(DeviceGetComputeMode, unsigned, "compute_mode")
CARD_NUMBER(DeviceGetCurrentClocksThrottleReasons, u64, "clock_reasons")
#ifndef NGCDL_OLD_DRIVER
CARD_NUMBER(DeviceGetCurrentClocksEventReasons, u64, "clock_reasons")
CARD_NUMBER(DeviceGetTotalEnergyConsumption, u64, "energy_mj")
#endif

int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    BEGIN_CARD("DeviceGetIndex");
    *index = (unsigned)index_of(card);
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char text[32];
    const char *at = text;
    BEGIN_CARD("DeviceGetCudaComputeCapability");
    if (!card_text(&state, card, "cc", text, sizeof text)) return NOT_SUPPORTED;
    *major = (int)number(&at);
    if (*at == '.') at++;
    *minor = (int)number(&at);
    return OK;
}

int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    u64 mode;
    BEGIN_CARD("DeviceGetMigMode");
    if (!card_number(&state, card, "mig", &mode)) return NOT_SUPPORTED;
    *current = *pending = (unsigned)mode;
    return OK;
}

#ifndef NGCDL_OLD_DRIVER
int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    u64 mode;
    BEGIN_CARD("DeviceGetMaxMigDeviceCount");
    *count = card_number(&state, card, "mig", &mode) && mode ? SLICES : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    char text[128];
    BEGIN_CARD("DeviceGetMigDeviceHandleByIndex");
    if (card >= CARDS || index >= SLICES) return INVALID;
    card = CARDS + card * SLICES + (long)index;
    if (!card_text(&state, card, "uuid", text, sizeof text)) return NOT_FOUND;
    *mig = &devices[card];
    return OK;
}
#endif

/* gpuN.fabric: 1 (not started), 2 (in progress) or 3 (completed, with the code fabric_status); gpuN.fabric_version: the
   only version of the record that the driver takes, 3 if not set */
typedef struct { char cluster[16]; int status; unsigned clique; unsigned char state; } nvmlGpuFabricInfo_t;
typedef struct { unsigned version; char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; }
    nvmlGpuFabricInfo_v2_t;
typedef struct { unsigned version; char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health;
    unsigned char summary; } nvmlGpuFabricInfo_v3_t;

static int fabric(const State *state, long card, int *status, unsigned char *place) {
    u64 value;
    *status = card_number(state, card, "fabric_status", &value) ? (int)value : OK;
    if (!card_number(state, card, "fabric", &value)) return NOT_SUPPORTED;
    *place = (unsigned char)value;
    return OK;
}

int nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
    BEGIN_CARD("DeviceGetGpuFabricInfo");
    return fabric(&state, card, &out->status, &out->state);
}

#ifndef NGCDL_OLD_DRIVER
int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *out) {
    u64 taken = 3;
    BEGIN_CARD("DeviceGetGpuFabricInfoV");
    card_number(&state, card, "fabric_version", &taken);
    if (out->version != ((taken == 2 ? sizeof(nvmlGpuFabricInfo_v2_t) : sizeof *out) | (unsigned)taken << 24)) return 25;
    return fabric(&state, card, &out->status, &out->state);
}
#endif

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    char text[32];
    BEGIN_CARD("DeviceGetPciInfo_v3");
    if (!card_text(&state, card, "pci", text, sizeof text)) return NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, text);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%.15s", strlen(text) > 12 ? text + 4 : text);
    pci->bus = (unsigned)card + 1;
    return OK;
}

/* ---- what a card does ---- */

typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;

static int memory(const State *state, long card, u64 *total, u64 *free, u64 *used) {
    if (!card_number(state, card, "memory_total", total) || !card_number(state, card, "memory_used", used))
        return NOT_SUPPORTED;
    *free = *used <= *total ? *total - *used : 0;
    return OK;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    u64 reserved;
    BEGIN_CARD("DeviceGetMemoryInfo");
    code = memory(&state, card, &out->total, &out->free, &out->used);
    if (!code && card_number(&state, card, "memory_reserved", &reserved)) out->used += reserved;
    return code;
}

#ifndef NGCDL_OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    BEGIN_CARD("DeviceGetMemoryInfo_v2");
    if (out->version != (sizeof *out | 2u << 24)) return 25; /* argument version mismatch */
    if (!card_number(&state, card, "memory_reserved", &out->reserved)) out->reserved = 0;
    return memory(&state, card, &out->total, &out->free, &out->used);
}
#endif

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;

int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    u64 gpu, memory_percent;
    BEGIN_CARD("DeviceGetUtilizationRates");
    if (!card_number(&state, card, "utilization", &gpu)) return NOT_SUPPORTED;
    if (!card_number(&state, card, "memory_utilization", &memory_percent)) return NOT_SUPPORTED;
    out->gpu = (unsigned)gpu;
    out->memory = (unsigned)memory_percent;
    return OK;
}

int nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    u64 value;
    BEGIN_CARD("DeviceGetTemperature");
    if (sensor) return INVALID;
    if (!card_number(&state, card, "temperature", &value)) return NOT_SUPPORTED;
    *celsius = (unsigned)value;
    return OK;
}

#ifndef NGCDL_OLD_DRIVER
typedef struct { unsigned version, sensor; int celsius; } nvmlTemperature_t;

int nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    u64 value;
    BEGIN_CARD("DeviceGetTemperatureV");
    if (out->version != (sizeof *out | 1u << 24)) return 25;
    if (!card_number(&state, card, "temperature", &value)) return NOT_SUPPORTED;
    out->celsius = (int)value;
    return OK;
}
#endif

static int clock_of(const State *state, long card, unsigned kind, int most, unsigned *mhz) {
    static const char *const keys[2][4] = {{"sm_mhz", "sm_mhz", "memory_mhz", "video_mhz"},
                                           {"max_sm_mhz", "max_sm_mhz", "max_memory_mhz", "max_video_mhz"}};
    u64 value;
    if (kind > 3) return INVALID;
    if (!card_number(state, card, keys[most][kind], &value)) return NOT_SUPPORTED;
    *mhz = (unsigned)value;
    return OK;
}

int nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    BEGIN_CARD("DeviceGetClockInfo");
    return clock_of(&state, card, kind, 0, mhz);
}

int nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned kind, unsigned *mhz) {
    BEGIN_CARD("DeviceGetMaxClockInfo");
    return clock_of(&state, card, kind, 1, mhz);
}

/* ---- performance monitoring ---- */

#ifndef NGCDL_OLD_DRIVER
enum { GPM_METRICS = 4 };
typedef struct { unsigned version, supported; } nvmlGpmSupport_t;
typedef struct sample { long card; u64 number; double values[GPM_METRICS]; int codes[GPM_METRICS]; } *nvmlGpmSample_t;
typedef struct { unsigned id; int code; double value; const char *texts[3]; } nvmlGpmMetric_t;
typedef struct { unsigned version, count; nvmlGpmSample_t first, second; nvmlGpmMetric_t metrics[]; } nvmlGpmMetricsGet_t;

int ngcdl_gpm_samples;

int nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    u64 value;
    BEGIN_CARD("GpmQueryDeviceSupport");
    if (out->version != 1) return 25;
    out->supported = card_number(&state, card, "gpm", &value) && value;
    return OK;
}

int nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    BEGIN("GpmSampleAlloc", -1);
    if (!(*sample = calloc(1, sizeof **sample))) return 20; /* not enough memory */
    ngcdl_gpm_samples++;
    return OK;
}

int nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    BEGIN("GpmSampleFree", -1);
    free(sample);
    ngcdl_gpm_samples--;
    return OK;
}

int nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    static const char *const keys[GPM_METRICS] = {"gpm_sm", "gpm_occupancy", "gpm_tensor", "gpm_dram"};
    static u64 taken;
    u64 value;
    BEGIN_CARD("GpmSampleGet");
    if (!card_number(&state, card, "gpm", &value) || !value) return NOT_SUPPORTED;
#ifdef NGCDL_STILL
    if (sample->number) { sample->number = ++taken; return OK; }
#endif
    sample->card = card;
    sample->number = ++taken;
    for (int metric = 0; metric < GPM_METRICS; metric++) {
        char text[64];
        const char *at = text + 5;
        int told = card_text(&state, card, keys[metric], text, sizeof text);
        sample->codes[metric] = !told ? NOT_SUPPORTED : strncmp(text, "code:", 5) ? OK : (int)number(&at);
        sample->values[metric] = told ? strtod(text, 0) : 0;
    }
    return OK;
}

/* The second sample must be a later one of the same card. The state is that of when it was taken. */
int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *out) {
    static const unsigned ids[GPM_METRICS] = {2, 3, 5, 10};
    BEGIN("GpmMetricsGet", out->second->card);
    if (out->version != 1) return 25;
    if (!out->first->number || out->second->number <= out->first->number || out->first->card != out->second->card)
        return INVALID;
    for (unsigned at = 0; at < out->count; at++) {
        nvmlGpmMetric_t *one = &out->metrics[at];
        one->code = NOT_SUPPORTED;
        for (int metric = 0; metric < GPM_METRICS; metric++)
            if (ids[metric] == one->id) {
                one->code = out->second->codes[metric];
                one->value = out->second->values[metric];
            }
    }
    return OK;
}
#endif

/* ---- who uses it ---- */

typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;

/* From 535.43 to 535.86 a record of version 3 had one more field. Callers know by whether the next two functions exist,
 * which they never call. */
#ifdef NGCDL_WIDE_RECORDS
enum { RECORD_SIZE = sizeof(nvmlProcessInfo_t) + sizeof(u64) };
#else
enum { RECORD_SIZE = sizeof(nvmlProcessInfo_t) };
#endif
#ifndef NGCDL_OLD_DRIVER
int nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device, void *out) { (void)device; (void)out; return NOT_SUPPORTED; }
#ifndef NGCDL_WIDE_RECORDS
int nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, void *out) { (void)device; (void)out; return NOT_SUPPORTED; }
#endif
#endif

static int processes(const State *state, long card, const char *key, unsigned *count, void *out, size_t size) {
    char list[8192];
    const char *at = list;
    unsigned n = 0, room = *count;
    if (!card_text(state, card, key, list, sizeof list)) return NOT_SUPPORTED;
    while (*at >= '0' && *at <= '9') {
        nvmlProcessInfo_t one = {(unsigned)number(&at), ~0ull, ~0u, ~0u};
        if (*at == ':' && *++at >= '0' && *at <= '9') one.bytes = number(&at);
        while (*at && *at != ',') at++;
        if (*at) at++;
        if (out && n < room) memcpy((char *)out + n * size, &one, sizeof one);
        n++;
    }
    *count = n;
    return n && (!out || n > room) ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES(call, key, size)                                           \
    int nvml##call(nvmlDevice_t device, unsigned *count, void *out) {             \
        BEGIN_CARD(#call);                                                   \
        return processes(&state, card, key, count, out, size);               \
    }
PROCESSES(DeviceGetComputeRunningProcesses_v2, "processes", sizeof(nvmlProcessInfo_t))
PROCESSES(DeviceGetComputeRunningProcesses_v3, "processes", RECORD_SIZE)
PROCESSES(DeviceGetGraphicsRunningProcesses_v2, "graphics_processes", sizeof(nvmlProcessInfo_t))
PROCESSES(DeviceGetGraphicsRunningProcesses_v3, "graphics_processes", RECORD_SIZE)
PROCESSES(DeviceGetMPSComputeRunningProcesses_v2, "mps_processes", sizeof(nvmlProcessInfo_t))
PROCESSES(DeviceGetMPSComputeRunningProcesses_v3, "mps_processes", RECORD_SIZE)

/* ngcdl doesn't ask for this, but its peers in scripts/benchmarks/sampling.py do. */
int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *out, unsigned *count, u64 since) {
    (void)out, (void)count, (void)since;
    BEGIN_CARD("DeviceGetProcessUtilization");
    return NOT_SUPPORTED;
}
