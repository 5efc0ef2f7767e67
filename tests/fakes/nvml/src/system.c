/* Calls about the driver as a whole, and the ways to a device handle. */
#include <string.h>
#include <strings.h>

#include "fake.h"

EXPORT nvmlReturn_t nvmlInit(void) { return gate_init(__func__, 0); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return gate_init(__func__, 0); }
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return gate_init(__func__, flags); }
EXPORT nvmlReturn_t nvmlShutdown(void) { return gate_shutdown(__func__); }

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    SYSTEM_CALL();
    return answer_text(session.script->driver, text, size);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    SYSTEM_CALL();
    return answer_text(session.script->nvml, text, size);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    SYSTEM_CALL();
    NEED(version != NULL);
    *version = session.script->cuda;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    SYSTEM_CALL();
    NEED(version != NULL);
    *version = session.script->cuda;
    return NVML_SUCCESS;
}

static nvmlReturn_t count(const Session *session, unsigned *gpus)
{
    NEED(gpus != NULL);
    *gpus = session->script->gpus;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *gpus)
{
    SYSTEM_CALL();
    return count(&session, gpus);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *gpus)
{
    SYSTEM_CALL();
    return count(&session, gpus);
}

/* A GPU is initialised when its handle is asked for: one that is gone or closed to us fails here, and only here. */
static nvmlReturn_t give(const char *call, Where where, nvmlDevice_t *handle)
{
    nvmlDevice_t found = gate_handle(where);
    SESSION;
    nvmlReturn_t code = gate_enter(call, found, &session);
    const Device *gpu = session.script == NULL ? NULL : &session.script->devices[where.gpu];
    bool alive = gpu != NULL && gpu->fault != NVML_ERROR_GPU_IS_LOST && gpu->fault != NVML_ERROR_NO_PERMISSION;
    if (code != NVML_SUCCESS && !(gpu != NULL && code == gpu->fault && alive)) return code;
    *handle = found;
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(const char *call, unsigned index, nvmlDevice_t *handle)
{
    SESSION;
    RETURN_IF(gate_peek(&session));
    NEED(handle != NULL && index < session.script->gpus);
    gate_leave(&session);
    return give(call, (Where){(int)index, NO_SLICE}, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *handle)
{
    return by_index(__func__, index, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    return by_index(__func__, index, handle);
}

static bool find_text(const Script *script, const char *text, bool pci, Where *where)
{
    for (int i = 0; i < (int)script->gpus; i++) {
        const Device *device = &script->devices[i];
        *where = (Where){i, NO_SLICE};
        if (strcasecmp(text, pci ? device->pci : device->uuid) == 0) return true;
        for (int s = 0; !pci && s < (int)device->slice_count; s++) {
            *where = (Where){i, s};
            if (strcasecmp(text, script->slices[i][s].uuid) == 0) return true;
        }
    }
    return false;
}

static nvmlReturn_t by_text(const char *call, const char *text, bool pci, nvmlDevice_t *handle)
{
    Where where;
    SESSION;
    RETURN_IF(gate_peek(&session));
    NEED(handle != NULL && text != NULL);
    if (!find_text(session.script, text, pci, &where)) return NVML_ERROR_NOT_FOUND;
    gate_leave(&session);
    return give(call, where, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    return by_text(__func__, uuid, false, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *handle)
{
    return by_text(__func__, pci, true, handle);
}
