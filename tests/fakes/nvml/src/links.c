/* What lies between GPUs: NVLinks with their other ends, the nearest common part of PCIe, and the CPUs beside a GPU. */
#include <string.h>

#include "fake.h"

enum { TO_GPU = 0, TO_SWITCH = 2 };
enum { SAME_BOARD = 0, SAME_SWITCH = 10, SAME_NODE = 40, OTHER_NODE = 50 };
enum { CPUS_OF_A_NODE = 32, BITS = 64 };

static nvmlReturn_t active_link(const Session *session, unsigned link, bool *active)
{
    if (!has(session, K_nvlink_links)) return NVML_ERROR_NOT_SUPPORTED;
    nvml_u64 links = read_count(session, K_nvlink_links, 1);
    nvml_u64 down = has(session, K_nvlink_down) ? read_count(session, K_nvlink_down, 1) : 0;
    NEED(link < links);
    nvml_u64 unread = has(session, K_nvlink_unread) ? read_count(session, K_nvlink_unread, 1) : 0;
    if (link + unread >= links) return NVML_ERROR_UNKNOWN;
    *active = link + down < links;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned link, unsigned *active)
{
    DEVICE_CALL(handle);
    NEED(active != NULL);
    bool is_active;
    RETURN_IF(active_link(&session, link, &is_active));
    *active = is_active;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned link, unsigned *type)
{
    DEVICE_CALL(handle);
    NEED(type != NULL);
    bool is_active;
    RETURN_IF(active_link(&session, link, &is_active));
    *type = has(&session, K_nvlink_peer) ? TO_GPU : TO_SWITCH;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned link, nvmlPciInfo_t *info)
{
    DEVICE_CALL(handle);
    NEED(info != NULL);
    bool is_active;
    RETURN_IF(active_link(&session, link, &is_active));
    if (!has(&session, K_nvlink_peer)) return pci_info("00000000:05:00.0", info);
    nvml_u64 peer = read_count(&session, K_nvlink_peer, 1);
    NEED(peer < session.script->gpus);
    return pci_info(session.script->devices[peer].pci, info);
}

static double number_or_zero(const Value *value, double now) { return value_present(value) ? value_at(value, now) : 0; }

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t handle, nvmlDevice_t other, unsigned *level)
{
    DEVICE_CALL(handle);
    NEED(other != NULL && level != NULL);
    const Value *here = session.device->values;
    const Value *there = session.script->devices[other->where.gpu].values;
    double now = session.now;
    if (handle == other) {
        *level = SAME_BOARD;
    } else if (number_or_zero(&here[K_numa], now) != number_or_zero(&there[K_numa], now)) {
        *level = OTHER_NODE;
    } else if (value_present(&here[K_pcie_switch]) && value_present(&there[K_pcie_switch]) &&
               value_at(&here[K_pcie_switch], now) == value_at(&there[K_pcie_switch], now)) {
        *level = SAME_SWITCH;
    } else {
        *level = SAME_NODE;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned size, unsigned long *nodes, unsigned scope)
{
    DEVICE_CALL(handle);
    NEED(size > 0 && nodes != NULL && scope < 2);
    if (!has(&session, K_numa)) return NVML_ERROR_NOT_SUPPORTED;
    memset(nodes, 0, size * sizeof *nodes);
    nodes[0] = 1ul << read_count(&session, K_numa, 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned size, unsigned long *cpus)
{
    DEVICE_CALL(handle);
    NEED(size > 0 && cpus != NULL);
    if (!has(&session, K_numa)) return NVML_ERROR_NOT_SUPPORTED;
    memset(cpus, 0, size * sizeof *cpus);
    unsigned first = (unsigned)read_count(&session, K_numa, 1) * CPUS_OF_A_NODE;
    for (unsigned cpu = first; cpu < first + CPUS_OF_A_NODE && cpu < size * BITS; cpu++)
        cpus[cpu / BITS] |= 1ul << (cpu % BITS);
    return NVML_SUCCESS;
}
