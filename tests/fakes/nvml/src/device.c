/* Queries of one device that read one or two keys of the script. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *text, unsigned size)
{
    DEVICE_CALL(handle);
    return answer_text(session.device->name, text, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *text, unsigned size)
{
    DEVICE_CALL(handle);
    return answer_text(session.device->uuid, text, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t handle, char *text, unsigned size)
{
    DEVICE_CALL(handle);
    return answer_text(session.device->serial, text, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    DEVICE_CALL(handle);
    NEED(index != NULL);
    *index = (unsigned)(handle->where.slice == NO_SLICE ? handle->where.gpu : handle->where.slice);
    return NVML_SUCCESS;
}

nvmlReturn_t pci_info(const char *pci, nvmlPciInfo_t *info)
{
    memset(info, 0, sizeof *info);
    if (sscanf(pci, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) return NVML_ERROR_NOT_SUPPORTED;
    info->pci_device_id = 0x10de;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", pci);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    DEVICE_CALL(handle);
    NEED(info != NULL);
    return pci_info(session.device->pci, info);
}

/* Calls that answer one number: symbol, key, factor from the script's unit to NVML's. */
#define ONE_NUMBER(symbol, key, scale)                                                                                 \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned *out)                                                     \
    {                                                                                                                  \
        DEVICE_CALL(handle);                                                                                           \
        return answer_unsigned(&session, key, scale, out);                                                             \
    }

ONE_NUMBER(nvmlDeviceGetPowerUsage, K_power_w, 1000)
ONE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, K_power_limit_w, 1000)
ONE_NUMBER(nvmlDeviceGetPowerManagementLimit, K_power_limit_w, 1000)
ONE_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, K_power_default_w, 1000)
ONE_NUMBER(nvmlDeviceGetFanSpeed, K_fan, 1)
ONE_NUMBER(nvmlDeviceGetMemoryBusWidth, K_bus_width, 1)
ONE_NUMBER(nvmlDeviceGetNumGpuCores, K_cores, 1)
ONE_NUMBER(nvmlDeviceGetArchitecture, K_arch, 1)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, K_pcie_gen, 1)
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, K_pcie_width, 1)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, K_pcie_max_gen, 1)
ONE_NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, K_pcie_max_gen, 1)
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, K_pcie_max_width, 1)
ONE_NUMBER(nvmlDeviceGetPersistenceMode, K_persistence, 1)
ONE_NUMBER(nvmlDeviceGetPerformanceState, K_pstate, 1)
ONE_NUMBER(nvmlDeviceGetPowerState, K_pstate, 1)
ONE_NUMBER(nvmlDeviceGetComputeMode, K_compute_mode, 1)
ONE_NUMBER(nvmlDeviceGetVirtualizationMode, K_virtualization, 1)
ONE_NUMBER(nvmlDeviceGetDisplayActive, K_display, 1)
ONE_NUMBER(nvmlDeviceGetDisplayMode, K_display, 1)

/* Calls that answer a share and the length of its sampling period. */
#define SAMPLED_SHARE(symbol, key)                                                                                     \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned *share, unsigned *period_us)                              \
    {                                                                                                                  \
        DEVICE_CALL(handle);                                                                                           \
        NEED(period_us != NULL);                                                                                       \
        *period_us = 167000;                                                                                           \
        return answer_unsigned(&session, key, 1, share);                                                               \
    }

SAMPLED_SHARE(nvmlDeviceGetEncoderUtilization, K_enc)
SAMPLED_SHARE(nvmlDeviceGetDecoderUtilization, K_dec)
SAMPLED_SHARE(nvmlDeviceGetJpgUtilization, K_jpg)
SAMPLED_SHARE(nvmlDeviceGetOfaUtilization, K_ofa)

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates)
{
    DEVICE_CALL(handle);
    NEED(rates != NULL);
    RETURN_IF(answer_unsigned(&session, K_busy, 1, &rates->gpu));
    return answer_unsigned(&session, K_membusy, 1, &rates->memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t handle, unsigned *least, unsigned *most)
{
    DEVICE_CALL(handle);
    RETURN_IF(answer_unsigned(&session, K_power_min_w, 1000, least));
    return answer_unsigned(&session, K_power_max_w, 1000, most);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle, nvml_u64 *millijoules)
{
    DEVICE_CALL(handle);
    NEED(millijoules != NULL);
    if (!has(&session, K_power_w)) return NVML_ERROR_NOT_SUPPORTED;
    *millijoules = (nvml_u64)(cumulative(&session, K_power_w, session.now) * 1000);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    DEVICE_CALL(handle);
    NEED(major != NULL && minor != NULL);
    if (!has(&session, K_cc)) return NVML_ERROR_NOT_SUPPORTED;
    int tenths = (int)read_count(&session, K_cc, 10);
    *major = tenths / 10;
    *minor = tenths % 10;
    return NVML_SUCCESS;
}

/* ---- temperature ---- */

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int sensor, unsigned *celsius)
{
    DEVICE_CALL(handle);
    NEED(sensor == 0);
    return answer_unsigned(&session, K_temp_c, 1, celsius);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature)
{
    DEVICE_CALL(handle);
    NEED(temperature != NULL && temperature->sensor == 0);
    if (temperature->version != NVML_TEMPERATURE_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return answer_unsigned(&session, K_temp_c, 1, (unsigned *)&temperature->temperature);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, unsigned threshold, unsigned *celsius)
{
    DEVICE_CALL(handle);
    if (threshold > 1) return NVML_ERROR_NOT_SUPPORTED;
    return answer_unsigned(&session, threshold == 0 ? K_shutdown_c : K_slowdown_c, 1, celsius);
}

/* ---- clocks and what holds them down ---- */

static nvmlReturn_t clock_of(const Session *session, const Key *keys, unsigned domain, unsigned *mhz)
{
    NEED(domain < 4);
    return answer_unsigned(session, keys[domain], 1, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned domain, unsigned *mhz)
{
    static const Key KEYS_NOW[] = {K_graphics_clock_mhz, K_sm_clock_mhz, K_mem_clock_mhz, K_video_clock_mhz};
    DEVICE_CALL(handle);
    return clock_of(&session, KEYS_NOW, domain, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned domain, unsigned *mhz)
{
    static const Key KEYS_MAX[] = {K_max_graphics_clock_mhz, K_max_sm_clock_mhz, K_max_mem_clock_mhz,
                                   K_max_video_clock_mhz};
    DEVICE_CALL(handle);
    return clock_of(&session, KEYS_MAX, domain, mhz);
}

static nvmlReturn_t throttle(const Session *session, nvml_u64 *mask)
{
    const Value *scripted = &session->device->values[K_throttle];
    NEED(mask != NULL);
    if (scripted->shape == UNSUPPORTED) return NVML_ERROR_NOT_SUPPORTED;
    bool idle = has(session, K_busy) && read_key(session, K_busy) == 0;
    *mask = value_present(scripted) ? read_count(session, K_throttle, 1) : idle ? NVML_THROTTLE_GPU_IDLE : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, nvml_u64 *mask)
{
    DEVICE_CALL(handle);
    return throttle(&session, mask);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, nvml_u64 *mask)
{
    DEVICE_CALL(handle);
    return throttle(&session, mask);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t handle, nvml_u64 *mask)
{
    DEVICE_CALL(handle);
    NEED(mask != NULL);
    *mask = 0x1ff;
    return NVML_SUCCESS;
}

/* ---- PCIe ---- */

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, unsigned counter, unsigned *kib_per_s)
{
    DEVICE_CALL(handle);
    NEED(counter < 2);
    nvmlReturn_t code = answer_unsigned(&session, counter == 0 ? K_pcie_tx_mibs : K_pcie_rx_mibs, 1024, kib_per_s);
    gate_leave(&session);
    sleep_seconds(0.020);  /* the driver measures for 20 ms */
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t handle, nvmlDeviceAddressingMode_t *mode)
{
    DEVICE_CALL(handle);
    NEED(mode != NULL);
    if (mode->version != NVML_ADDRESSING_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return answer_unsigned(&session, K_addressing, 1, &mode->value);
}

/* ---- calls that this driver has and none of its GPUs supports ---- */

#define NEVER_SUPPORTED(symbol)                                                                                        \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t handle)                                                                    \
    {                                                                                                                  \
        DEVICE_CALL(handle);                                                                                           \
        return NVML_ERROR_NOT_SUPPORTED;                                                                               \
    }

NEVER_SUPPORTED(nvmlDeviceGetDriverModel)
NEVER_SUPPORTED(nvmlDeviceGetDriverModel_v2)
NEVER_SUPPORTED(nvmlDeviceGetSamples)
NEVER_SUPPORTED(nvmlDeviceGetMarginTemperature)
NEVER_SUPPORTED(nvmlDeviceGetViolationStatus)
NEVER_SUPPORTED(nvmlDeviceGetSramEccErrorStatus)
NEVER_SUPPORTED(nvmlDeviceGetRetiredPages_v2)
