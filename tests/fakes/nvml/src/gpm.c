/* GPU performance monitoring: two samples of running integrals, and the means between them. */
#include <math.h>
#include <stdlib.h>

#include "fake.h"

static const double LEAST_INTERVAL_S = 0.1;

typedef enum { RATIO, RATE } MetricKind;
static const struct { unsigned id; Key key; MetricKind kind; const char *name; } METRICS[] = {
    {1, K_graphics, RATIO, "GRAPHICS_UTIL"},
    {2, K_sm, RATIO, "SM_UTIL"},
    {3, K_occupancy, RATIO, "SM_OCCUPANCY"},
    {4, K_integer, RATIO, "INTEGER_UTIL"},
    {5, K_tensor, RATIO, "ANY_TENSOR_UTIL"},
    {10, K_dram, RATIO, "DRAM_BW_UTIL"},
    {11, K_fp64, RATIO, "FP64_UTIL"},
    {12, K_fp32, RATIO, "FP32_UTIL"},
    {13, K_fp16, RATIO, "FP16_UTIL"},
    {20, K_pcie_tx_mibs, RATE, "PCIE_TX_PER_SEC"},
    {21, K_pcie_rx_mibs, RATE, "PCIE_RX_PER_SEC"},
    {60, K_nvlink_rx_mibs, RATE, "NVLINK_TOTAL_RX_PER_SEC"},
    {61, K_nvlink_tx_mibs, RATE, "NVLINK_TOTAL_TX_PER_SEC"},
};
enum { METRIC_COUNT = sizeof METRICS / sizeof *METRICS };

struct GpmSample {
    nvmlDevice_t device;  /* NULL until the first get */
    double time;
    double totals[METRIC_COUNT];
    bool blank[METRIC_COUNT];  /* the script says nan */
};

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    SYSTEM_CALL();
    NEED(sample != NULL);
    *sample = calloc(1, sizeof **sample);
    return *sample == NULL ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    SYSTEM_CALL();
    NEED(sample != NULL);
    free(sample);
    return NVML_SUCCESS;
}

static bool supported(const Session *session) { return has(session, K_gpm) && read_key(session, K_gpm) == 1; }

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
    DEVICE_CALL(handle);
    NEED(support != NULL);
    if (support->version != NVML_GPM_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->supported = supported(&session);
    return NVML_SUCCESS;
}

static void fill(const Session *session, nvmlDevice_t device, nvmlGpmSample_t sample)
{
    sample->device = device;
    sample->time = session->now;
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        sample->totals[i] = cumulative(session, METRICS[i].key, session->now);
        sample->blank[i] = has(session, METRICS[i].key) && isnan(read_key(session, METRICS[i].key));
    }
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample)
{
    DEVICE_CALL(handle);
    NEED(sample != NULL);
    bool vgpu = has(&session, K_virtualization) && read_key(&session, K_virtualization) == NVML_VIRTUALIZATION_VGPU;
    if (!supported(&session) || mig_on(session.device) || vgpu) return NVML_ERROR_NOT_SUPPORTED;
    fill(&session, handle, sample);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t handle, unsigned gpu_instance, nvmlGpmSample_t sample)
{
    DEVICE_CALL(handle);
    NEED(sample != NULL);
    if (!supported(&session) || !mig_on(session.device)) return NVML_ERROR_NOT_SUPPORTED;
    NEED(gpu_instance >= 1 && gpu_instance <= session.device->slice_count);
    Where where = {handle->where.gpu, (int)gpu_instance - 1};
    session.device = &session.script->slices[where.gpu][where.slice];
    fill(&session, gate_handle(where), sample);
    return NVML_SUCCESS;
}

static void measure(const Session *session, const nvmlGpmMetricsGet_t *request, nvmlGpmMetric_t *metric)
{
    nvmlGpmSample_t first = request->sample1, second = request->sample2;
    double seconds = second->time - first->time;
    unsigned i = 0;
    while (i < METRIC_COUNT && METRICS[i].id != metric->id) i++;
    metric->value = 0;
    metric->result = NVML_ERROR_NOT_SUPPORTED;
    if (i == METRIC_COUNT || !has(session, METRICS[i].key)) return;
    metric->text.short_name = metric->text.long_name = METRICS[i].name;
    metric->text.unit = METRICS[i].kind == RATE ? "MiB/s" : "%";
    bool close = seconds < LEAST_INTERVAL_S;
    metric->result = close && METRICS[i].kind == RATIO ? NVML_ERROR_NO_DATA : NVML_SUCCESS;
    if (close) return;
    metric->value = first->blank[i] || second->blank[i] ? NAN : (second->totals[i] - first->totals[i]) / seconds;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request)
{
    NEED(request != NULL && request->sample1 != NULL && request->sample2 != NULL);
    NEED(request->sample1->device != NULL && request->sample1->device == request->sample2->device);
    DEVICE_CALL(request->sample1->device);
    if (request->version != NVML_GPM_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NEED(request->count <= NVML_GPM_METRIC_MAX);
    for (unsigned i = 0; i < request->count; i++) measure(&session, request, &request->metrics[i]);
    return NVML_SUCCESS;
}
