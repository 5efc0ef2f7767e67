/* Framebuffer, BAR1, ECC, row remapping, and the processes that hold memory. */
#include <math.h>

#include "fake.h"

/* ---- memory ---- */

static double processes_mib(const Device *device)
{
    double sum = 0;
    for (unsigned i = 0; i < device->process_count; i++)
        if (!isnan(device->processes[i].mib)) sum += device->processes[i].mib;
    return sum;
}

static double used_mib(const Session *session, nvmlDevice_t handle)
{
    if (has(session, K_used_mib)) return read_key(session, K_used_mib);
    double sum = processes_mib(session->device);
    if (handle->where.slice != NO_SLICE) return sum;
    for (unsigned i = 0; i < session->device->slice_count; i++) {
        const Device *slice = &session->script->slices[handle->where.gpu][i];
        const Value *used = &slice->values[K_used_mib];
        sum += value_present(used) ? value_at(used, session->now) : processes_mib(slice);
    }
    return sum;
}

static nvml_u64 bytes(double mib) { return mib > 0 ? (nvml_u64)(mib * MIB) : 0; }

static nvmlReturn_t memory(const Session *session, nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    if (!has(session, K_total_mib) || session->device->values[K_used_mib].shape == UNSUPPORTED)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->total = read_count(session, K_total_mib, MIB);
    memory->reserved = has(session, K_reserved_mib) ? read_count(session, K_reserved_mib, MIB) : 0;
    memory->used = bytes(used_mib(session, handle));
    nvml_u64 taken = memory->reserved + memory->used;
    memory->free = taken < memory->total ? memory->total - taken : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *out)
{
    nvmlMemory_v2_t full = {0};
    DEVICE_CALL(handle);
    NEED(out != NULL);
    RETURN_IF(memory(&session, handle, &full));
    *out = (nvmlMemory_t){full.total, full.free, full.used + full.reserved};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *out)
{
    DEVICE_CALL(handle);
    NEED(out != NULL);
    /* nvtop sends the bare number 2. */
    if (out->version != NVML_MEMORY_V2 && out->version != 2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return memory(&session, handle, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *out)
{
    DEVICE_CALL(handle);
    NEED(out != NULL);
    if (!has(&session, K_bar1_total_mib)) return NVML_ERROR_NOT_SUPPORTED;
    out->bar1Total = read_count(&session, K_bar1_total_mib, MIB);
    out->bar1Used = has(&session, K_bar1_used_mib) ? read_count(&session, K_bar1_used_mib, MIB) : 0;
    out->bar1Free = out->bar1Total - out->bar1Used;
    return NVML_SUCCESS;
}

/* ---- ECC and row remapping ---- */

static bool ecc_on(const Session *session) { return has(session, K_ecc) && read_key(session, K_ecc) == 1; }

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *now, unsigned *pending)
{
    DEVICE_CALL(handle);
    RETURN_IF(answer_unsigned(&session, K_ecc, 1, now));
    return answer_unsigned(&session, K_ecc, 1, pending);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned kind, unsigned counter, nvml_u64 *errors)
{
    DEVICE_CALL(handle);
    NEED(errors != NULL && kind < 2 && counter < 2);
    Key key = kind == 0 ? K_ecc_corrected : K_ecc_uncorrected;
    if (!ecc_on(&session) || !has(&session, key)) return NVML_ERROR_NOT_SUPPORTED;
    *errors = read_count(&session, key, 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned kind, unsigned counter,
                                                    unsigned location, nvml_u64 *errors)
{
    enum { DEVICE_MEMORY = 2 };
    DEVICE_CALL(handle);
    NEED(errors != NULL && kind < 2 && counter < 2);
    Key key = kind == 0 ? K_ecc_corrected : K_ecc_uncorrected;
    if (!ecc_on(&session) || !has(&session, key)) return NVML_ERROR_NOT_SUPPORTED;
    *errors = location == DEVICE_MEMORY ? read_count(&session, key, 1) : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *pending, unsigned *failure)
{
    DEVICE_CALL(handle);
    if (mig_on(session.device)) return NVML_ERROR_NOT_SUPPORTED;
    RETURN_IF(answer_unsigned(&session, K_remap_correctable, 1, correctable));
    RETURN_IF(answer_unsigned(&session, K_remap_uncorrectable, 1, uncorrectable));
    RETURN_IF(answer_unsigned(&session, K_remap_pending, 1, pending));
    return answer_unsigned(&session, K_remap_failure, 1, failure);
}

/* ---- processes ---- */

typedef struct { unsigned room, count; size_t size; char *out; } List;

static void put_process(List *list, const Process *process, Where where)
{
    if (list->count++ >= list->room) return;
    nvmlProcessInfo_t *info = (nvmlProcessInfo_t *)(void *)(list->out + (list->count - 1) * list->size);
    info->pid = process->pid;
    info->used = isnan(process->mib) ? NVML_VALUE_NOT_AVAILABLE : bytes(process->mib);
    if (list->size < sizeof *info) return;
    bool slice = where.slice != NO_SLICE;
    info->gpu_instance = slice ? (unsigned)where.slice + 1 : NVML_NO_INSTANCE;
    info->compute_instance = slice ? 0 : NVML_NO_INSTANCE;
}

static void put_device(List *list, const Device *device, ProcessKind kind, Where where)
{
    for (unsigned i = 0; i < device->process_count; i++)
        if (device->processes[i].kind == kind) put_process(list, &device->processes[i], where);
}

static nvmlReturn_t processes(const char *call, nvmlDevice_t handle, ProcessKind kind, unsigned *count, void *out,
                              size_t size)
{
    SESSION;
    RETURN_IF(gate_enter(call, handle, &session));
    NEED(count != NULL);
    List list = {out == NULL ? 0 : *count, 0, size, out};
    Where where = handle->where;
    put_device(&list, session.device, kind, where);
    for (int i = 0; where.slice == NO_SLICE && i < (int)session.device->slice_count; i++)
        put_device(&list, &session.script->slices[where.gpu][i], kind, (Where){where.gpu, i});
    *count = list.count;
    return list.count > list.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESS_LIST(symbol, kind, record)                                                                             \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned *count, record *out)                                      \
    {                                                                                                                  \
        return processes(__func__, handle, kind, count, out, sizeof(record));                                          \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, nvmlProcessInfo_t)

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *out,
                                                    unsigned *count, nvml_u64 after_us)
{
    DEVICE_CALL(handle);
    NEED(count != NULL);
    const Device *device = session.device;
    nvml_u64 now_us = (nvml_u64)(session.now * 1e6);
    unsigned room = out == NULL ? 0 : *count, found = 0;
    if (mig_on(device) || handle->where.slice != NO_SLICE) return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < device->process_count && now_us > after_us; i++) {
        const Process *process = &device->processes[i];
        double sm = value_present(&process->sm) ? value_at(&process->sm, session.now) : 0;
        if (!(sm > 0) || found++ >= room) continue;
        out[found - 1] = (nvmlProcessUtilizationSample_t){
            .pid = process->pid, .time_us = now_us, .sm = (unsigned)(sm + 0.5),
            .memory = has(&session, K_membusy) ? (unsigned)read_count(&session, K_membusy, 1) : 0};
    }
    *count = found;
    if (found == 0) return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
