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
    snprintf(uuid, *length, "2fff75a1-0000-1000-80fa-%012x", gpu);
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
