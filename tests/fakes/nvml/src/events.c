/* Event sets: Xid and its kin, delivered once to each set that registered for them. */
#include <math.h>
#include <stdlib.h>

#include "fake.h"

static const double POLL_S = 0.25;

struct EventSet {
    nvml_u64 masks[MAX_GPUS];
    double registered[MAX_GPUS];
    unsigned delivered_count, generation;
    Event delivered[MAX_EVENTS];
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    SYSTEM_CALL();
    NEED(set != NULL);
    *set = calloc(1, sizeof **set);
    return *set == NULL ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    SYSTEM_CALL();
    NEED(set != NULL);
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, nvml_u64 *mask)
{
    DEVICE_CALL(handle);
    NEED(mask != NULL);
    *mask = NVML_EVENTS_SUPPORTED;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, nvml_u64 mask, nvmlEventSet_t set)
{
    DEVICE_CALL(handle);
    NEED(set != NULL && handle->where.slice == NO_SLICE);
    if (mask & ~NVML_EVENTS_SUPPORTED) return NVML_ERROR_NOT_SUPPORTED;
    set->masks[handle->where.gpu] |= mask;
    set->registered[handle->where.gpu] = session.now;
    return NVML_SUCCESS;
}

static bool same_event(const Event *a, const Event *b)
{
    return a->gpu == b->gpu && a->mask == b->mask && a->data == b->data && a->at == b->at && a->ordinal == b->ordinal;
}

static bool among(const Event *event, const Event *events, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (same_event(event, &events[i])) return true;
    return false;
}

/* A line that left the script may come back as a new event. */
static void forget_removed(struct EventSet *set, const Script *script)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < set->delivered_count; i++)
        if (among(&set->delivered[i], script->events, script->event_count)) set->delivered[kept++] = set->delivered[i];
    set->delivered_count = kept;
    set->generation = gate_generation();
}

static const Event *next_event(struct EventSet *set, const Session *session)
{
    const Script *script = session->script;
    if (set->generation != gate_generation()) forget_removed(set, script);
    for (unsigned i = 0; i < script->event_count; i++) {
        const Event *event = &script->events[i];
        bool wanted = (unsigned)event->gpu < script->gpus && (set->masks[event->gpu] & event->mask) != 0;
        bool due = event->at == 0 || (event->at >= set->registered[event->gpu] && event->at <= session->now);
        if (wanted && due && !among(event, set->delivered, set->delivered_count)) return event;
    }
    return NULL;
}

static bool deliver(struct EventSet *set, const Session *session, nvmlEventData_t *out)
{
    const Event *event = next_event(set, session);
    if (event == NULL) return false;
    set->delivered[set->delivered_count++] = *event;
    *out = (nvmlEventData_t){gate_handle((Where){event->gpu, NO_SLICE}), event->mask, event->data, NVML_NO_INSTANCE,
                             NVML_NO_INSTANCE};
    return true;
}

static nvmlReturn_t wait_event(const char *call, nvmlEventSet_t set, nvmlEventData_t *out, unsigned milliseconds)
{
    SESSION;
    RETURN_IF(gate_enter_system(call, &session));
    NEED(set != NULL && out != NULL);
    double deadline = session.now + milliseconds / 1e3;
    while (!deliver(set, &session, out)) {
        double left = deadline - session.now;
        gate_leave(&session);
        if (left <= 0) return NVML_ERROR_TIMEOUT;
        sleep_seconds(fmin(left, POLL_S));
        RETURN_IF(gate_peek(&session));
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *out, unsigned milliseconds)
{
    return wait_event(__func__, set, out, milliseconds);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned milliseconds)
{
    return wait_event(__func__, set, out, milliseconds);
}
