/* MIG: mode, slices of a GPU and what they are. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *now, unsigned *pending)
{
    DEVICE_CALL(handle);
    RETURN_IF(answer_unsigned(&session, K_mig_mode, 1, now));
    return answer_unsigned(&session, K_mig_mode, 1, pending);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count)
{
    DEVICE_CALL(handle);
    NEED(count != NULL);
    *count = mig_on(session.device) ? MAX_SLICES : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *slice)
{
    DEVICE_CALL(handle);
    NEED(slice != NULL && index < MAX_SLICES && handle->where.slice == NO_SLICE);
    if (!mig_on(session.device)) return NVML_ERROR_NOT_SUPPORTED;
    if (index >= session.device->slice_count) return NVML_ERROR_NOT_FOUND;
    *slice = gate_handle((Where){handle->where.gpu, (int)index});
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is_slice)
{
    DEVICE_CALL(handle);
    NEED(is_slice != NULL);
    *is_slice = handle->where.slice != NO_SLICE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *parent)
{
    DEVICE_CALL(handle);
    NEED(parent != NULL && handle->where.slice != NO_SLICE);
    *parent = gate_handle((Where){handle->where.gpu, NO_SLICE});
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *id)
{
    DEVICE_CALL(handle);
    NEED(id != NULL);
    if (handle->where.slice == NO_SLICE) return NVML_ERROR_NOT_SUPPORTED;
    *id = (unsigned)handle->where.slice + 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *id)
{
    DEVICE_CALL(handle);
    NEED(id != NULL);
    if (handle->where.slice == NO_SLICE) return NVML_ERROR_NOT_SUPPORTED;
    *id = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *attributes)
{
    DEVICE_CALL(handle);
    NEED(attributes != NULL);
    if (handle->where.slice == NO_SLICE) return NVML_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = session.device->slice_sms;
    attributes->gpu_slices = attributes->compute_slices = (unsigned)atoi(session.device->mig_profile);
    attributes->memory_mb = read_count(&session, K_total_mib, 1);
    return NVML_SUCCESS;
}
