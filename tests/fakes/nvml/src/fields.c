/* nvmlDeviceGetFieldValues: a table from field ids to keys of the script. */
#include "fake.h"

typedef enum { GAUGE, COUNTER, LINK_COUNTER, LINK_GAUGE } FieldKind;

static const struct { unsigned id; FieldKind kind; Key key; double scale; } FIELDS[] = {
    {38, GAUGE, K_nvlink_errors, 1},
    {52, GAUGE, K_nvlink_errors, 0},
    {94, GAUGE, K_pcie_replays, 1},
    {74, COUNTER, K_throttled_power_cap, 1e9},
    {76, COUNTER, K_throttled_sync_boost, 1e9},
    {77, COUNTER, K_throttled_board_limit, 1e9},
    {78, COUNTER, K_throttled_low_utilization, 1e9},
    {79, COUNTER, K_throttled_reliability, 1e9},
    {82, GAUGE, K_mem_temp_c, 1},
    {83, COUNTER, K_power_w, 1000},
    {91, GAUGE, K_nvlink_links, 1},
    {138, LINK_COUNTER, K_nvlink_tx_mibs, 1024},
    {139, LINK_COUNTER, K_nvlink_rx_mibs, 1024},
    {140, LINK_COUNTER, K_nvlink_tx_mibs, 1024},
    {141, LINK_COUNTER, K_nvlink_rx_mibs, 1024},
    {142, GAUGE, K_remap_correctable, 1},
    {143, GAUGE, K_remap_uncorrectable, 1},
    {144, GAUGE, K_remap_pending, 1},
    {145, GAUGE, K_remap_failure, 1},
    {186, GAUGE, K_power_w, 1000},
    {187, GAUGE, K_power_min_w, 1000},
    {188, GAUGE, K_power_max_w, 1000},
    {189, GAUGE, K_power_default_w, 1000},
    {190, GAUGE, K_power_limit_w, 1000},
    {191, COUNTER, K_power_w, 1000},
    {192, GAUGE, K_power_limit_w, 1000},
    {208, LINK_GAUGE, K_nvlink5_errors, 1},
    {211, LINK_GAUGE, K_nvlink5_errors, 0},
    {215, LINK_GAUGE, K_nvlink5_errors, 0},
    {230, GAUGE, K_recovery, 1},
    {269, COUNTER, K_throttled_sw_thermal, 1e9},
    {270, COUNTER, K_throttled_hw_thermal, 1e9},
    {271, COUNTER, K_throttled_power_brake, 1e9},
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS, POWER_AVERAGE = 185 };

static nvmlReturn_t link_field(const Session *session, FieldKind kind, Key key, double scale, nvmlFieldValue_t *field)
{
    double links = has(session, K_nvlink_links) ? read_key(session, K_nvlink_links) : 0;
    double amount = kind == LINK_GAUGE ? read_key(session, key) : cumulative(session, key, session->now);
    double total = amount * scale;
    if (!(links > 0)) return NVML_ERROR_NOT_SUPPORTED;
    if (field->scope != NVML_ALL_LINKS && field->scope >= links) return NVML_ERROR_INVALID_ARGUMENT;
    field->value.ull = (nvml_u64)(field->scope == NVML_ALL_LINKS ? total : total / links);
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_field(const Session *session, unsigned row, nvmlFieldValue_t *field)
{
    Key key = FIELDS[row].key;
    if (!has(session, key)) return NVML_ERROR_NOT_SUPPORTED;
    field->type = FIELDS[row].kind == GAUGE ? VALUE_TYPE_UINT : VALUE_TYPE_ULONGLONG;
    FieldKind kind = FIELDS[row].kind;
    if (kind == LINK_COUNTER || kind == LINK_GAUGE) return link_field(session, kind, key, FIELDS[row].scale, field);
    if (kind == COUNTER)
        field->value.ull = (nvml_u64)(cumulative(session, key, session->now) * FIELDS[row].scale);
    else
        field->value.u = (unsigned)read_count(session, key, FIELDS[row].scale);
    return NVML_SUCCESS;
}

/* The mean of the last second, as Ampere and newer report it. */
static nvmlReturn_t power_average(const Session *session, nvmlFieldValue_t *field)
{
    if (!has(session, K_power_w)) return NVML_ERROR_NOT_SUPPORTED;
    double watts = value_integral(&session->device->values[K_power_w], session->now - 1, session->now);
    field->type = VALUE_TYPE_UINT;
    field->value.u = (unsigned)(watts * 1000 + 0.5);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    DEVICE_CALL(handle);
    NEED(fields != NULL && count > 0);
    for (nvmlFieldValue_t *field = fields; field < fields + count; field++) {
        unsigned row = 0;
        while (row < FIELD_COUNT && FIELDS[row].id != field->field) row++;
        field->timestamp_us = (int64_t)(session.now * 1e6);
        field->latency_us = 1;
        if (field->field == POWER_AVERAGE) field->result = power_average(&session, field);
        else field->result = row == FIELD_COUNT ? NVML_ERROR_NOT_SUPPORTED : answer_field(&session, row, field);
    }
    return NVML_SUCCESS;
}
