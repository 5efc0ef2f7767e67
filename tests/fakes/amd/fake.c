/* A libamd_smi.so that answers from a script: the file named by GPUMON_FAKE_AMD, read anew at each call.
 *
 * Lines: `gpus N`; `GPU KEY VALUE` (GPU: a number or *; later lines win); `GPU CALL CODE` makes a call fail with that
 * amdsmi_status_t, or hang where it is -1. Layouts are those of amdsmi.h of ROCm 7.0, as the Python binding has them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char market_name[256]; uint32_t vendor_id; char vendor_name[256]; uint32_t subvendor_id; uint64_t device_id;
    uint32_t rev_id; char serial[256]; uint32_t oam_id, compute_units; uint64_t target; uint32_t subsystem_id, reserved[21]; } Asic;
typedef struct { uint32_t gfx, umc, mm, reserved[13]; } Activity;
typedef struct { uint32_t total, used, reserved[2]; } Vram;
typedef struct { uint64_t socket; uint32_t current, average; uint64_t volts[3]; uint32_t limit; uint64_t reserved[18]; } Power;
typedef struct { uint64_t cap, standard, dpm, least, most, reserved[3]; } Cap;
typedef struct { uint32_t clock, least, most; uint8_t locked, asleep; uint32_t reserved[4]; } Clock;
typedef struct { uint64_t corrected, uncorrected, deferred, reserved[5]; } Errors;
typedef struct { char version[256], date[256], name[256]; } DriverInfo;
typedef struct { char name[256]; uint32_t pid; uint64_t memory; uint64_t engines[2]; uint32_t more_engines[12];
    uint64_t gtt, cpu, vram; uint32_t more_memory[10]; char container[256]; uint32_t units, reserved[11]; } Process;

typedef struct { uint32_t type; char vendor[256]; uint32_t padding; uint64_t size; uint32_t bits, padding_2; uint64_t bandwidth, reserved[37]; } VramInfo;
typedef struct { uint64_t stamp, violation_stamp, counts[7], percents[6]; uint8_t prochot, ppt, socket, vr, hbm, below, padding[2];
    uint64_t xcp_counts[4][8][8], xcp_percents[4][8][8]; uint8_t xcp_active[4][8][8]; uint64_t reserved[3][8][8]; } Violations;
typedef struct { uint64_t kfd; uint32_t node, partition, reserved[12]; } Kfd;
typedef struct { uint64_t address, size; uint32_t status, padding; } Page;
typedef struct { uint64_t function : 3, device : 5, bus : 8, domain : 48; } Bdf;
typedef struct { Bdf bdf; uint32_t bit_rate, most; uint32_t type, padding; uint64_t read, write, reserved[2]; } Link;
typedef struct { uint32_t count, padding; Link links[8]; uint64_t reserved[7]; } Links;
typedef struct { uint16_t width, padding; uint32_t speed, version, slot, most_version, padding_2; uint64_t reserved[9]; } PcieStatic;
typedef struct { uint16_t width, padding; uint32_t speed, bandwidth, padding_2; uint64_t counts[5]; uint32_t recovery, padding_3; uint64_t reserved[12]; } PcieMetric;
typedef struct { PcieStatic most; PcieMetric now; uint64_t reserved[32]; } Pcie;
typedef struct { uint32_t count, status[8], padding; uint64_t reserved[7]; } LinkStates;

static int gpu_of(const void *handle) { return (int)(intptr_t)handle - 1; }

/* The rest of the last line for this GPU and key; false where there is none. */
static int look(int gpu, const char *key, char *text)
{
    const char *path = getenv("GPUMON_FAKE_AMD");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], who[16], word[64];
    int found = 0, at;
    while (file && fgets(line, sizeof line, file)) {
        if (gpu < 0) {
            if (sscanf(line, "gpus %511[^\n]", text) == 1) found = 1;
        } else if (sscanf(line, "%15s %63s %n", who, word, &at) == 2 && strcmp(word, key) == 0
                   && (who[0] == '*' || atoi(who) == gpu)) {
            strcpy(text, line + at);
            text[strcspn(text, "\n")] = '\0';
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static double number(int gpu, const char *key, double otherwise)
{
    char text[512];
    return look(gpu, key, text) ? atof(text) : otherwise;
}

static int gpus(void)
{
    char text[512];
    return look(-1, "", text) ? atoi(text) : 0;
}

static int outcome(const void *handle, const char *call)
{
    int code = (int)number(gpu_of(handle), call, 0);
    while (code < 0) pause();
    return gpu_of(handle) >= gpus() ? 31 : code;
}
#define BEGIN int code = outcome(handle, __func__ + strlen("amdsmi_get_")); if (code) return code; int gpu = gpu_of(handle)

int amdsmi_init(uint64_t flags) { (void)flags; return (int)number(0, "init", 0); }
int amdsmi_shut_down(void) { return 0; }
int amdsmi_get_socket_handles(uint32_t *count, void **handles)
{
    *count = (uint32_t)gpus();
    for (uint32_t i = 0; handles && i < *count; i++) handles[i] = (void *)(intptr_t)(i + 1);
    return 0;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles)
{
    *count = 1;
    if (handles) handles[0] = socket;
    return 0;
}
int amdsmi_get_gpu_device_uuid(void *handle, uint32_t *length, char *uuid)
{
    BEGIN;
    snprintf(uuid, *length, "2fff75a1-0000-1000-80fa-%012x", (int)number(gpu, "uuid", gpu));
    return 0;
}
int amdsmi_get_gpu_asic_info(void *handle, Asic *info)
{
    BEGIN;
    char text[512];
    memset(info, 0, sizeof *info);
    strncpy(info->market_name, look(gpu, "name", text) ? text : "AMD Instinct MI300X", 255);
    strcpy(info->serial, "3fa");
    info->compute_units = (uint32_t)number(gpu, "units", 304);
    return 0;
}
int amdsmi_get_gpu_activity(void *handle, Activity *info)
{
    BEGIN;
    *info = (Activity){(uint32_t)number(gpu, "busy", 0), (uint32_t)number(gpu, "umc", 0), 0xFFFF, {0}};
    return 0;
}
int amdsmi_get_gpu_vram_usage(void *handle, Vram *info)
{
    BEGIN;
    *info = (Vram){(uint32_t)number(gpu, "vram_mib", 196592), (uint32_t)number(gpu, "used_mib", 283), {0}};
    return 0;
}
int amdsmi_get_power_info(void *handle, Power *info)
{
    BEGIN;
    *info = (Power){.current = (uint32_t)number(gpu, "power_w", 140), .average = (uint32_t)number(gpu, "average_w", 0xFFFF)};
    return 0;
}
int amdsmi_get_power_cap_info(void *handle, uint32_t sensor, Cap *info)
{
    BEGIN;
    (void)sensor;
    *info = (Cap){.cap = (uint64_t)(1e6 * number(gpu, "cap_w", 750)), .standard = 750000000};
    return 0;
}
int amdsmi_get_temp_metric(void *handle, int sensor, int metric, int64_t *value)
{
    BEGIN;
    (void)metric;
    if (sensor == 0) return 2; /* no edge sensor on Instinct */
    *value = (int64_t)number(gpu, sensor == 1 ? "hotspot_c" : "memory_c", 40);
    return 0;
}
int amdsmi_get_clock_info(void *handle, int type, Clock *info)
{
    BEGIN;
    *info = (Clock){.clock = (uint32_t)number(gpu, type ? "memory_mhz" : "clock_mhz", 132), .most = type ? 1300 : 2100};
    return 0;
}
int amdsmi_get_energy_count(void *handle, uint64_t *count, float *resolution, uint64_t *stamp)
{
    BEGIN;
    *count = (uint64_t)(number(gpu, "energy_j", 1000) / 15.259e-6);
    *resolution = 15.259f;
    *stamp = 0;
    return 0;
}
int amdsmi_get_gpu_total_ecc_count(void *handle, Errors *info)
{
    BEGIN;
    *info = (Errors){.corrected = (uint64_t)number(gpu, "corrected", 0), .uncorrected = (uint64_t)number(gpu, "uncorrected", 0)};
    return 0;
}
int amdsmi_get_gpu_driver_info(void *handle, DriverInfo *info)
{
    BEGIN;
    (void)gpu;
    memset(info, 0, sizeof *info);
    strcpy(info->version, "6.14.14");
    return 0;
}
int amdsmi_get_gpu_process_list(void *handle, uint32_t *count, Process *list)
{
    BEGIN;
    char text[512];
    *count = 0;
    if (!look(gpu, "process", text)) return 0;
    memset(list, 0, sizeof *list);
    list->pid = (uint32_t)atoi(text);
    strcpy(list->name, "python3");
    list->memory = list->vram = (uint64_t)(number(gpu, "used_mib", 0) * 1048576);
    *count = 1;
    return 0;
}
int amdsmi_get_gpu_device_bdf(void *handle, Bdf *bdf)
{
    BEGIN;
    *bdf = (Bdf){.function = (uint64_t)number(gpu, "function", 0), .bus = (uint64_t)number(gpu, "bus", 5 + gpu)};
    return 0;
}
int amdsmi_get_gpu_kfd_info(void *handle, Kfd *info)
{
    BEGIN;
    *info = (Kfd){.kfd = 51545 + gpu, .node = 1 + gpu, .partition = (uint32_t)number(gpu, "partition", 0)};
    return 0;
}
int amdsmi_get_gpu_vram_info(void *handle, VramInfo *info)
{
    BEGIN;
    double gbs = number(gpu, "peak_gbs", -1);
    *info = (VramInfo){.type = 4, .size = 196592, .bits = 8192, .bandwidth = gbs < 0 ? UINT64_MAX : (uint64_t)gbs};
    return 0;
}
int amdsmi_get_violation_status(void *handle, Violations *info)
{
    BEGIN;
    memset(info, 0xff, sizeof *info);
    info->ppt = (uint8_t)number(gpu, "ppt", 0);
    info->socket = (uint8_t)number(gpu, "socket", 0);
    info->hbm = (uint8_t)number(gpu, "hbm", 0);
    info->prochot = 0;
    return 0;
}
int amdsmi_get_gpu_bad_page_info(void *handle, uint32_t *count, Page *pages)
{
    BEGIN;
    uint32_t all = (uint32_t)number(gpu, "bad_pages", 0), pending = (uint32_t)number(gpu, "pending", 0);
    for (uint32_t i = 0; pages && i < all; i++) pages[i] = (Page){.address = 4096 * i, .size = 4096, .status = i < pending};
    *count = all;
    return 0;
}
int amdsmi_get_pcie_info(void *handle, Pcie *info)
{
    BEGIN;
    memset(info, 0, sizeof *info);
    info->most = (PcieStatic){.width = 16, .speed = 32000, .version = 5};
    info->now = (PcieMetric){.width = (uint16_t)number(gpu, "lanes", 16), .speed = (uint32_t)number(gpu, "mts", 32000)};
    return 0;
}
int amdsmi_get_link_metrics(void *handle, Links *info)
{
    BEGIN;
    memset(info, 0, sizeof *info);
    info->count = (uint32_t)number(gpu, "links", 0);
    for (uint32_t i = 0; i < info->count; i++)
        info->links[i] = (Link){.bit_rate = 32, .most = 512, .type = i ? 2 : 1, .read = (uint64_t)number(gpu, "read_kb", 0),
            .write = (uint64_t)number(gpu, "write_kb", 0)};
    return 0;
}
int amdsmi_get_gpu_xgmi_link_status(void *handle, LinkStates *info)
{
    BEGIN;
    memset(info, 0, sizeof *info);
    info->count = (uint32_t)number(gpu, "xgmi", 0);
    for (uint32_t i = 0; i < info->count; i++) info->status[i] = i < (uint32_t)number(gpu, "xgmi_up", 0) ? 1 : 0;
    return 0;
}
int amdsmi_topo_get_link_type(void *handle, void *other, uint64_t *hops, uint32_t *type)
{
    int code = outcome(handle, "topo_get_link_type");
    if (code) return code;
    *hops = 1;
    *type = (uint32_t)number(gpu_of(handle), "link_type", 2);
    if (number(gpu_of(handle), "half", -1) != number(gpu_of(other), "half", -1)) *type = 1, *hops = 3;
    return 0;
}
int amdsmi_topo_get_numa_node_number(void *handle, uint32_t *node)
{
    int code = outcome(handle, "topo_get_numa_node_number");
    if (code) return code;
    *node = (uint32_t)number(gpu_of(handle), "numa", 0);
    return 0;
}
