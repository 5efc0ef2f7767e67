/* The part of NVML's binary interface that the fake driver implements. Layouts follow pynvml's ctypes classes. */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct Handle *nvmlDevice_t;
typedef struct EventSet *nvmlEventSet_t;
typedef struct GpmSample *nvmlGpmSample_t;
typedef unsigned long long nvml_u64;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_UNKNOWN = 999,
};

#define NVML_INIT_FLAG_NO_GPUS 1u
#define NVML_EVENT_XID 0x8ull
#define NVML_EVENTS_SUPPORTED 0xffffull
#define NVML_VALUE_NOT_AVAILABLE 0xffffffffffffffffull
#define NVML_NO_INSTANCE 0xffffffffu
#define NVML_THROTTLE_GPU_IDLE 0x1ull
#define NVML_VIRTUALIZATION_VGPU 2u
#define NVML_TEMPERATURE_VERSION 0x100000Cu
#define NVML_ADDRESSING_VERSION 0x1000008u
#define NVML_MEMORY_V2 0x02000028u
#define NVML_GPM_VERSION 1u
#define NVML_GPM_METRIC_MAX 477u
#define NVML_ALL_LINKS 0xffffffffu

typedef enum { VALUE_TYPE_DOUBLE = 0, VALUE_TYPE_UINT = 1, VALUE_TYPE_ULONGLONG = 3 } nvmlValueType_t;

typedef struct { nvml_u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; nvml_u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { nvml_u64 bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned version; int sensor; int temperature; } nvmlTemperature_t;
typedef struct { unsigned version, value; } nvmlDeviceAddressingMode_t;
typedef struct { unsigned pid; nvml_u64 used; } nvmlProcessInfo_v1_t;
typedef struct { unsigned pid; nvml_u64 used; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;
typedef struct { unsigned pid; nvml_u64 time_us; unsigned sm, memory, enc, dec; } nvmlProcessUtilizationSample_t;
typedef struct { nvmlDevice_t device; nvml_u64 type, data; unsigned gpu_instance, compute_instance; } nvmlEventData_t;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned field, scope;
    int64_t timestamp_us, latency_us;
    nvmlValueType_t type;
    nvmlReturn_t result;
    union { double d; unsigned u; nvml_u64 ull; } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    nvml_u64 memory_mb;
} nvmlDeviceAttributes_t;

typedef struct {
    unsigned id;
    nvmlReturn_t result;
    double value;
    struct { const char *short_name, *long_name, *unit; } text;
} nvmlGpmMetric_t;

typedef struct {
    unsigned version, count;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

typedef struct { unsigned version, supported; } nvmlGpmSupport_t;

_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "nvmlGpmMetric_t");
_Static_assert(sizeof(nvmlGpmMetricsGet_t) == 24, "nvmlGpmMetricsGet_t");
_Static_assert(sizeof(nvmlTemperature_t) == 12, "nvmlTemperature_t");

#endif
