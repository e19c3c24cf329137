/* A libnvidia-ml.so that plays a scenario file: the GPUs of a simulated host.
 *
 * The file is named by READYROOM_NVML_SCENARIO, else it is `scenario` beside this library. It is read again whenever it changes
 * (replace it by renaming a new one over it), so a simulation plays by writing it. Lines of words; `#` begins a comment:
 *
 *     driver 580.159.04          versions, as nvidia-smi prints them
 *     cuda 13000
 *     init 18                    what nvmlInit returns: 0, 9 driver not loaded, 18 version mismatch, 4 no permission, 999 unknown
 *     hang 1                     every call waits until this line is gone
 *     xid 1 3 79                 serial, GPU, code: an event, delivered once to every event set made before it appeared
 *     gpu 0                      what follows is about this GPU; one that isn't named isn't there: nvmlInit counts those that are, and
 *                                one that goes away afterwards is lost
 *     uuid GPU-…                 pci 00000000:06:00.0      name NVIDIA H200
 *     error 15                   what every call for it returns: 15 lost, 999 unknown, 4 no permission
 *     hang 1                     every call for it waits until this line is gone
 *     process 4321 96000 NAME    a compute process: pid, MiB (-1: not told), a name for when /proc doesn't know the pid
 *     graphics 99 12 Xorg        the same, not computing
 *     mig 12000 20096 UUID NAME  an instance: used and total MiB; its presence turns MIG on
 *     KEY NUMBER                 a value; nan is an unknown error, a key that isn't there is "not supported" to the caller:
 *         memory_total_mib memory_used_mib memory_reserved_mib utilisation memory_utilisation temperature_c memory_temperature_c
 *         power_w power_limit_w sm_clock_mhz sm_clock_max_mhz memory_clock_mhz memory_clock_max_mhz throttle (bits)
 *         performance_state (0 is P0) pcie_generation pcie_generation_max pcie_width pcie_width_max pcie_rx_kb_s pcie_tx_kb_s
 *         nvlinks_up nvlinks_total nvlink_errors ecc_corrected ecc_uncorrected remapped_rows
 *         row_remap_pending row_remap_failed retired_pages page_retirement_pending fan_percent energy_j
 *
 * Types and numbers are those of NVIDIA's public nvml.h.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, UNKNOWN = 999 };
enum { GPUS = 72, KEYS = 48, PROCESSES = 32, INSTANCES = 8, XIDS = 64, MIB = 1 << 20 };

typedef unsigned long long u64;
struct process { unsigned pid; double mib; int graphics; char name[128]; };
struct instance { double used, total; char uuid[96], name[96]; };
struct gpu {
    int there, error, hang, keys, processes, instances;
    char uuid[96], name[96], pci[32];
    struct { char key[32]; double value; } values[KEYS];
    struct process process[PROCESSES];
    struct instance instance[INSTANCES];
};
struct xid { long serial; int gpu; u64 code; };
struct handle { int gpu, instance; };
struct event_set { long seen; u64 gpus[2]; };

static struct { char driver[80]; int cuda, init, hang, xids; struct gpu gpu[GPUS]; struct xid xid[XIDS]; } now;
static struct handle handles[GPUS][INSTANCES + 1];
static struct timespec read_at;
static ino_t read_inode;
static int started, counted;
static int places[GPUS]; /* by the library's index, the scenario's */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the scenario -------------------------------------------------------------------------------------------------------------- */

static const char *path_of_scenario(void) {
    static char path[4096];
    const char *given = getenv("READYROOM_NVML_SCENARIO");
    Dl_info own;
    if (given && *given) return given;
    if (!*path && dladdr((void *)path_of_scenario, &own) && own.dli_fname) {
        const char *slash = strrchr(own.dli_fname, '/');
        snprintf(path, sizeof path, "%.*s/scenario", slash ? (int)(slash - own.dli_fname) : 1, slash ? own.dli_fname : ".");
    }
    return path;
}

static void copy_rest(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
    to[strcspn(to, "\n")] = 0;
}

static void read_line(char *line, struct gpu **current) {
    char key[32];
    int used = 0;
    struct gpu *g = *current;
    line[strcspn(line, "#\n")] = 0;
    if (sscanf(line, "%31s %n", key, &used) < 1) return;
    char *rest = line + used;
    if (!strcmp(key, "gpu")) {
        int index = atoi(rest);
        *current = index >= 0 && index < GPUS ? &now.gpu[index] : NULL;
        if (*current) (*current)->there = 1;
    } else if (!strcmp(key, "xid") && now.xids < XIDS) {
        struct xid *x = &now.xid[now.xids];
        if (sscanf(rest, "%ld %d %llu", &x->serial, &x->gpu, &x->code) == 3) now.xids++;
    } else if (!g) {
        if (!strcmp(key, "driver")) copy_rest(now.driver, sizeof now.driver, rest);
        else if (!strcmp(key, "cuda")) now.cuda = atoi(rest);
        else if (!strcmp(key, "init")) now.init = atoi(rest);
        else if (!strcmp(key, "hang")) now.hang = atoi(rest);
    } else if (!strcmp(key, "uuid")) copy_rest(g->uuid, sizeof g->uuid, rest);
    else if (!strcmp(key, "name")) copy_rest(g->name, sizeof g->name, rest);
    else if (!strcmp(key, "pci")) copy_rest(g->pci, sizeof g->pci, rest);
    else if (!strcmp(key, "error")) g->error = atoi(rest);
    else if (!strcmp(key, "hang")) g->hang = atoi(rest);
    else if ((!strcmp(key, "process") || !strcmp(key, "graphics")) && g->processes < PROCESSES) {
        struct process *p = &g->process[g->processes];
        int name = 0;
        p->graphics = key[0] == 'g';
        if (sscanf(rest, "%u %lf %n", &p->pid, &p->mib, &name) >= 2) {
            copy_rest(p->name, sizeof p->name, name ? rest + name : "");
            g->processes++;
        }
    } else if (!strcmp(key, "mig") && g->instances < INSTANCES) {
        struct instance *i = &g->instance[g->instances];
        int name = 0;
        if (sscanf(rest, "%lf %lf %95s %n", &i->used, &i->total, i->uuid, &name) >= 3) {
            copy_rest(i->name, sizeof i->name, name ? rest + name : "");
            g->instances++;
        }
    } else if (g->keys < KEYS) {
        snprintf(g->values[g->keys].key, sizeof g->values[0].key, "%s", key);
        g->values[g->keys++].value = atof(rest);
    }
}

/* Called with the lock held. */
static void refresh(void) {
    struct stat info;
    char line[1024];
    struct gpu *current = NULL;
    if (stat(path_of_scenario(), &info) ||
        (info.st_ino == read_inode && !memcmp(&info.st_mtim, &read_at, sizeof read_at)))
        return;
    FILE *file = fopen(path_of_scenario(), "re");
    if (!file) return;
    if (!fstat(fileno(file), &info) &&
        (info.st_ino != read_inode || memcmp(&info.st_mtim, &read_at, sizeof read_at))) {
        memset(&now, 0, sizeof now);
        while (fgets(line, sizeof line, file)) read_line(line, &current);
        read_inode = info.st_ino;
        read_at = info.st_mtim;
    }
    fclose(file);
}

static void wait_a_moment(void) {
    pthread_mutex_unlock(&lock);
    usleep(20000);
    pthread_mutex_lock(&lock);
    refresh();
}

/* The GPU of a handle, with the lock held and all hanging done; NULL, with the lock released, when the call must return *status. */
static struct gpu *enter(const struct handle *h, int *status) {
    pthread_mutex_lock(&lock);
    refresh();
    while (now.hang || (h && now.gpu[h->gpu].hang)) wait_a_moment();
    if (!started) *status = UNINITIALIZED;
    else if (now.init) *status = now.init;
    else if (!h) *status = INVALID_ARGUMENT;
    else if (!now.gpu[h->gpu].there) *status = 15;
    else if (now.gpu[h->gpu].error) *status = now.gpu[h->gpu].error;
    else return &now.gpu[h->gpu];
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int leave(int status) {
    pthread_mutex_unlock(&lock);
    return status;
}

static const double *find(const struct gpu *g, const char *key) {
    for (int i = 0; i < g->keys; i++)
        if (!strcmp(g->values[i].key, key)) return &g->values[i].value;
    return NULL;
}

static double or_zero(const struct gpu *g, const char *key) {
    const double *found = find(g, key);
    return found ? *found : 0;
}

/* One number of a GPU, scaled, as an unsigned. */
static int number(const struct handle *h, const char *key, double scale, unsigned *to) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    const double *found = find(g, key);
    if (found && !isnan(*found)) *to = (unsigned)(*found * scale);
    return leave(!found ? NOT_SUPPORTED : isnan(*found) ? UNKNOWN : OK);
}

static int words(const struct handle *h, char *to, unsigned size, int uuid) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    const struct instance *i = h->instance ? &g->instance[h->instance - 1] : NULL;
    snprintf(to, size, "%s", uuid ? (i ? i->uuid : g->uuid) : (i ? i->name : g->name));
    return leave(OK);
}

/* ---- the library --------------------------------------------------------------------------------------------------------------- */

/* The GPUs are counted here, and only here: one that goes away afterwards keeps its index and is lost; who starts anew doesn't see it,
   and the ones behind it move up. */
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    refresh();
    while (now.hang) wait_a_moment();
    if (!now.init && !started) {
        counted = 0;
        for (int i = 0; i < GPUS; i++)
            if (now.gpu[i].there) places[counted++] = i;
        started = 1;
    }
    return leave(now.init);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { started = 0; return OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "The operation was successful";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 15: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    pthread_mutex_lock(&lock);
    refresh();
    snprintf(to, size, "%s", now.driver);
    return leave(OK);
}
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return nvmlSystemGetDriverVersion(to, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    pthread_mutex_lock(&lock);
    refresh();
    *to = now.cuda;
    return leave(now.cuda ? OK : NOT_SUPPORTED);
}
int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = 0; i < GPUS; i++)
        for (int j = 0; j < now.gpu[i].processes; j++)
            if (now.gpu[i].process[j].pid == pid) {
                snprintf(to, size, "%s", now.gpu[i].process[j].name);
                return leave(OK);
            }
    return leave(NOT_FOUND);
}

int nvmlDeviceGetCount_v2(unsigned *to) {
    pthread_mutex_lock(&lock);
    refresh();
    if (!started || now.init) return leave(started ? now.init : UNINITIALIZED);
    *to = (unsigned)counted;
    return leave(OK);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **to) {
    int status = OK;
    if (!started) return UNINITIALIZED;
    if (index >= (unsigned)counted) return INVALID_ARGUMENT;
    struct handle *h = &handles[places[index]][0];
    h->gpu = places[index];
    if (!enter(h, &status)) return status;
    *to = h;
    return leave(OK);
}
int nvmlDeviceGetIndex(struct handle *h, unsigned *to) {
    for (*to = 0; (int)*to < counted && places[*to] != h->gpu; ++*to) {}
    return (int)*to < counted ? OK : INVALID_ARGUMENT;
}
int nvmlDeviceGetName(struct handle *h, char *to, unsigned size) { return words(h, to, size, 0); }
int nvmlDeviceGetUUID(struct handle *h, char *to, unsigned size) { return words(h, to, size, 1); }

struct pci { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char id[32]; };
int nvmlDeviceGetPciInfo_v3(struct handle *h, struct pci *to) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    memset(to, 0, sizeof *to);
    snprintf(to->id, sizeof to->id, "%s", g->pci);
    sscanf(g->pci, "%x:%x:%x", &to->domain, &to->bus, &to->device);
    return leave(OK);
}

/* ---- values -------------------------------------------------------------------------------------------------------------------- */

static int memory_of(struct handle *h, double *used, double *total, double *reserved) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    if (h->instance) {
        if (h->instance > g->instances) return leave(NOT_FOUND);
        *used = g->instance[h->instance - 1].used * MIB;
        *total = g->instance[h->instance - 1].total * MIB;
        *reserved = 0;
        return leave(OK);
    }
    if (!find(g, "memory_total_mib") || !find(g, "memory_used_mib")) return leave(NOT_SUPPORTED);
    if (isnan(or_zero(g, "memory_used_mib"))) return leave(UNKNOWN);
    *used = or_zero(g, "memory_used_mib") * MIB;
    *total = or_zero(g, "memory_total_mib") * MIB;
    *reserved = or_zero(g, "memory_reserved_mib") * MIB;
    return leave(OK);
}
struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(struct handle *h, struct memory *to) {
    double used, total, reserved;
    int status = memory_of(h, &used, &total, &reserved);
    if (status) return status;
    *to = (struct memory){(u64)total, (u64)(total - used - reserved), (u64)(used + reserved)};
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(struct handle *h, struct memory_v2 *to) {
    double used, total, reserved;
    int status = memory_of(h, &used, &total, &reserved);
    if (status) return status;
    *to = (struct memory_v2){to->version, (u64)total, (u64)reserved, (u64)(total - used - reserved), (u64)used};
    return OK;
}
int nvmlDeviceGetUtilizationRates(struct handle *h, unsigned to[2]) {
    int status = number(h, "utilisation", 1, &to[0]);
    return status ? status : number(h, "memory_utilisation", 1, &to[1]);
}

#define NUMBER(function, key, scale) int function(struct handle *h, unsigned *to) { return number(h, key, scale, to); }
NUMBER(nvmlDeviceGetPowerUsage, "power_w", 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_w", 1000)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_w", 1000)
NUMBER(nvmlDeviceGetPerformanceState, "performance_state", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 1)
NUMBER(nvmlDeviceGetFanSpeed, "fan_percent", 1)

int nvmlDeviceGetTemperature(struct handle *h, int sensor, unsigned *to) {
    return sensor ? INVALID_ARGUMENT : number(h, "temperature_c", 1, to);
}
int nvmlDeviceGetClockInfo(struct handle *h, int kind, unsigned *to) {
    return number(h, kind == 2 ? "memory_clock_mhz" : "sm_clock_mhz", 1, to);
}
int nvmlDeviceGetMaxClockInfo(struct handle *h, int kind, unsigned *to) {
    return number(h, kind == 2 ? "memory_clock_max_mhz" : "sm_clock_max_mhz", 1, to);
}
static int wide(struct handle *h, const char *key, double scale, u64 *to) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    const double *found = find(g, key);
    if (found && !isnan(*found)) *to = (u64)(*found * scale);
    return leave(!found ? NOT_SUPPORTED : isnan(*found) ? UNKNOWN : OK);
}
int nvmlDeviceGetCurrentClocksEventReasons(struct handle *h, u64 *to) { return wide(h, "throttle", 1, to); }
int nvmlDeviceGetCurrentClocksThrottleReasons(struct handle *h, u64 *to) { return wide(h, "throttle", 1, to); }
int nvmlDeviceGetTotalEnergyConsumption(struct handle *h, u64 *to) { return wide(h, "energy_j", 1000, to); }
int nvmlDeviceGetPcieThroughput(struct handle *h, int counter, unsigned *to) {
    usleep(20000); /* the real one measures for as long */
    return number(h, counter ? "pcie_rx_kb_s" : "pcie_tx_kb_s", 1, to);
}
int nvmlDeviceGetNvLinkState(struct handle *h, unsigned link, int *to) {
    unsigned total = 0, up = 0;
    int status = number(h, "nvlinks_total", 1, &total);
    if (status) return status;
    if (link >= total) return INVALID_ARGUMENT;
    status = number(h, "nvlinks_up", 1, &up);
    *to = link < up;
    return status;
}
int nvmlDeviceGetRemappedRows(struct handle *h, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    int status = number(h, "remapped_rows", 1, corrected);
    *uncorrected = *pending = *failed = 0;
    if (!status) {
        number(h, "row_remap_pending", 1, pending);
        number(h, "row_remap_failed", 1, failed);
    }
    return status;
}

/* All of them for the second cause, a double bit error. */
int nvmlDeviceGetRetiredPages(struct handle *h, int cause, unsigned *count, u64 *pages) {
    unsigned found = 0, room = *count;
    int status = number(h, "retired_pages", 1, &found);
    if (status) return status;
    if (cause != 1) found = 0;
    *count = found;
    if (found > (pages ? room : 0)) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; pages && i < found; i++) pages[i] = 0x1000ULL * (i + 1);
    return OK;
}
int nvmlDeviceGetRetiredPagesPendingStatus(struct handle *h, unsigned *to) { return number(h, "page_retirement_pending", 1, to); }

struct field { unsigned id, scope; long long at, latency; int type, status; union { u64 number; double real; } value; };
int nvmlDeviceGetFieldValues(struct handle *h, int count, struct field *to) {
    static const struct { unsigned id; const char *key; } known[] = {
        {3, "ecc_corrected"}, {4, "ecc_uncorrected"}, {38, "nvlink_errors"}, {82, "memory_temperature_c"},
        {197, "pcie_tx_kb_s"}, {198, "pcie_rx_kb_s"}};
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    for (int i = 0; i < count; i++) {
        to[i].status = NOT_SUPPORTED;
        to[i].type = 3; /* unsigned long long */
        for (unsigned j = 0; j < sizeof known / sizeof *known; j++)
            if (known[j].id == to[i].id && find(g, known[j].key) && !isnan(or_zero(g, known[j].key))) {
                to[i].status = OK;
                to[i].value.number = (u64)or_zero(g, known[j].key);
                if (to[i].id >= 197) { /* counters of bytes, in 32 bits as the real ones */
                    to[i].type = 1;
                    to[i].value.number = (unsigned)(u64)(or_zero(g, known[j].key) * 1e3 * (t.tv_sec % 4096 + t.tv_nsec / 1e9));
                }
            }
    }
    return leave(OK);
}

/* ---- processes and MIG --------------------------------------------------------------------------------------------------------- */

struct process_info { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
static int processes(struct handle *h, int graphics, unsigned *count, struct process_info *to) {
    int status = OK;
    unsigned found = 0, room = *count;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    for (int i = 0; i < g->processes && !h->instance; i++) {
        const struct process *p = &g->process[i];
        if (p->graphics != graphics) continue;
        if (to && found < room) {
            u64 memory = p->mib < 0 ? ~0ULL : (u64)(p->mib * MIB);
            to[found] = (struct process_info){p->pid, memory, ~0U, ~0U};
        }
        found++;
    }
    *count = found;
    return leave(found > (to ? room : 0) ? INSUFFICIENT_SIZE : OK);
}
int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *h, unsigned *count, struct process_info *to) {
    return processes(h, 0, count, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(struct handle *h, unsigned *count, struct process_info *to) {
    return processes(h, 1, count, to);
}
int nvmlDeviceGetMigMode(struct handle *h, unsigned *current, unsigned *pending) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    *current = *pending = g->instances > 0;
    return leave(OK);
}
int nvmlDeviceGetMaxMigDeviceCount(struct handle *h, unsigned *to) { (void)h; *to = INSTANCES; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *h, unsigned index, struct handle **to) {
    int status = OK;
    const struct gpu *g = enter(h, &status);
    if (!g) return status;
    if ((int)index >= g->instances) return leave(NOT_FOUND);
    handles[h->gpu][index + 1] = (struct handle){h->gpu, (int)index + 1};
    *to = &handles[h->gpu][index + 1];
    return leave(OK);
}

/* ---- events -------------------------------------------------------------------------------------------------------------------- */

struct event { struct handle *device; u64 type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetCreate(struct event_set **to) {
    *to = calloc(1, sizeof **to);
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = 0; i < now.xids; i++)
        if (now.xid[i].serial > (*to)->seen) (*to)->seen = now.xid[i].serial;
    return leave(OK);
}
int nvmlEventSetFree(struct event_set *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(struct handle *h, u64 types, struct event_set *set) {
    int status = OK;
    if (!(types & 8)) return INVALID_ARGUMENT; /* nvmlEventTypeXidCriticalError */
    if (!enter(h, &status)) return status;
    leave(OK);
    set->gpus[h->gpu / 64] |= 1ULL << (h->gpu % 64);
    return OK;
}
int nvmlEventSetWait_v2(struct event_set *set, struct event *to, unsigned milliseconds) {
    for (unsigned waited = 0;; waited += 50) {
        pthread_mutex_lock(&lock);
        refresh();
        for (int i = 0; i < now.xids; i++) {
            const struct xid *x = &now.xid[i];
            if (x->serial <= set->seen || x->gpu < 0 || x->gpu >= GPUS) continue;
            set->seen = x->serial;
            if (!(set->gpus[x->gpu / 64] >> (x->gpu % 64) & 1)) continue;
            *to = (struct event){&handles[x->gpu][0], 8, x->code, ~0U, ~0U};
            return leave(OK);
        }
        leave(OK);
        if (waited >= milliseconds) return TIMEOUT;
        usleep(50000);
    }
}
