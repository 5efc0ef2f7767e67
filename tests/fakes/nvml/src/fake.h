/* What the files of the fake driver share: values over time, the script, and the gate that every call passes. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

enum { MAX_GPUS = 256, MAX_SLICES = 7, MAX_PROCESSES = 64, MAX_RULES = 256, MAX_EVENTS = 128, ERROR_SIZE = 256 };
enum { ALL = -1, NO_SLICE = -2 };  /* in a Where: every GPU or slice; the GPU itself */
enum { MIB = 1 << 20 };

/* ---- value.c: a number that depends on CLOCK_REALTIME alone ---- */

typedef enum { UNSET, UNSUPPORTED, CONSTANT, SINE, SQUARE, RAMP, RAMP_ONCE } Shape;
typedef struct { Shape shape; double a, b, c, d; } Value;

bool value_parse(const char *text, Value *value);
bool value_present(const Value *value);
double value_at(const Value *value, double t);
double value_integral(const Value *value, double from, double to);

/* ---- script.c: what the script says ---- */

#define KEYS(X)                                                                                                        \
    X(total_mib) X(used_mib) X(reserved_mib) X(bar1_total_mib) X(bar1_used_mib)                                        \
    X(busy) X(membusy) X(enc) X(dec) X(jpg) X(ofa)                                                                     \
    X(gpm) X(graphics) X(sm) X(occupancy) X(integer) X(tensor) X(dram) X(fp64) X(fp32) X(fp16)                         \
    X(pcie_tx_mibs) X(pcie_rx_mibs) X(nvlink_rx_mibs) X(nvlink_tx_mibs) X(nvlink_links)                                \
    X(nvlink_down) X(nvlink_unread) X(nvlink_errors) X(nvlink5_errors) X(pcie_replays) X(nvlink_peer) X(numa)          \
    X(pcie_switch)                                                                                                     \
    X(power_w) X(power_limit_w) X(power_default_w) X(power_min_w) X(power_max_w)                                       \
    X(temp_c) X(mem_temp_c) X(slowdown_c) X(shutdown_c) X(fan)                                                         \
    X(graphics_clock_mhz) X(sm_clock_mhz) X(mem_clock_mhz) X(video_clock_mhz)                                          \
    X(max_graphics_clock_mhz) X(max_sm_clock_mhz) X(max_mem_clock_mhz) X(max_video_clock_mhz)                          \
    X(bus_width) X(cores) X(arch) X(cc) X(pcie_gen) X(pcie_width) X(pcie_max_gen) X(pcie_max_width)                    \
    X(throttle) X(pstate) X(persistence) X(compute_mode) X(virtualization) X(addressing) X(recovery) X(display)        \
    X(ecc) X(ecc_corrected) X(ecc_uncorrected)                                                                         \
    X(throttled_power_cap) X(throttled_sync_boost) X(throttled_board_limit) X(throttled_low_utilization)               \
    X(throttled_reliability) X(throttled_sw_thermal) X(throttled_hw_thermal) X(throttled_power_brake)                  \
    X(remap_correctable) X(remap_uncorrectable) X(remap_pending) X(remap_failure) X(mig_mode)

#define KEY_ENUM(name) K_##name,
typedef enum { KEYS(KEY_ENUM) KEY_COUNT } Key;

typedef struct { int gpu, slice; } Where;
typedef enum { COMPUTE, GRAPHICS, MPS } ProcessKind;
typedef struct { unsigned pid; ProcessKind kind; double mib; Value sm; } Process;  /* mib NAN: not available */
typedef struct { int gpu, ordinal; nvml_u64 mask, data; double at; } Event;         /* at 0: at once */

typedef enum { ANSWER, HANG, JAM, BUSY, CRASH } Deed;
/* seconds of HANG < 0: for ever; warm_seconds of BUSY: where the same call was made a moment ago. */
typedef struct { Deed deed; nvmlReturn_t code; double seconds, warm_seconds; } Outcome;
typedef struct { Where where; char name[64]; Outcome outcome; } Rule;

typedef struct {
    char name[96], uuid[80], pci[32], serial[32], mig_profile[16];
    Value values[KEY_COUNT];
    double base[KEY_COUNT];  /* integral of the value from the driver's load to the script's `since` */
    nvmlReturn_t fault;
    unsigned process_count, slice_count, slice_sms;
    Process processes[MAX_PROCESSES];
} Device;

typedef struct {
    char driver[80], nvml[80];
    int cuda;
    unsigned gpus;
    double loaded, since;
    Outcome init;
    unsigned rule_count, event_count;
    Rule rules[MAX_RULES];
    Event events[MAX_EVENTS];
    Device devices[MAX_GPUS];
    Device slices[MAX_GPUS][MAX_SLICES];
} Script;

typedef struct { char text[ERROR_SIZE]; } Complaint;

bool script_parse(const char *path, Script *script, Complaint *complaint);
bool device_line(Script *script, Where where, char *line, Complaint *complaint);
bool call_line(Script *script, Where where, char *rest, Complaint *complaint);
bool complain(Complaint *complaint, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool parse_unsigned(const char *text, nvml_u64 limit, nvml_u64 *number);
bool symbol_known(const char *name);
const Outcome *find_rule(const Script *script, const char *call, Where where);

/* ---- profiles.c, outcome.c ---- */

const char *profile_text(const char *name);
extern const char PROFILE_COMMON[];
bool outcome_parse(const char *text, Outcome *outcome);
bool error_code(const char *name, nvmlReturn_t *code);

/* ---- gate.c: one loaded driver per process ---- */

struct Handle { Where where; };

typedef struct {
    const Script *script;  /* locked for the length of the call */
    const Device *device;  /* NULL for calls without one */
    double now;
    bool locked;
} Session;

nvmlReturn_t gate_enter(const char *call, nvmlDevice_t handle, Session *session);
nvmlReturn_t gate_enter_system(const char *call, Session *session);
nvmlReturn_t gate_peek(Session *session);  /* a session that is no call: neither logged nor faulty */
nvmlReturn_t gate_init(const char *call, unsigned flags);
nvmlReturn_t gate_shutdown(const char *call);
void gate_leave(Session *session);
unsigned gate_generation(void);  /* counts the scripts read; call it inside a session */
nvmlDevice_t gate_handle(Where where);
void sleep_seconds(double seconds);
double realtime(void);

#define SESSION Session session __attribute__((cleanup(gate_leave))) = {0}
#define RETURN_IF(call)                                                                                                \
    do {                                                                                                               \
        nvmlReturn_t returned_ = (call);                                                                               \
        if (returned_ != NVML_SUCCESS) return returned_;                                                               \
    } while (0)
#define DEVICE_CALL(handle) SESSION; RETURN_IF(gate_enter(__func__, (handle), &session))
#define SYSTEM_CALL() SESSION; RETURN_IF(gate_enter_system(__func__, &session))
#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) return NVML_ERROR_INVALID_ARGUMENT;                                                          \
    } while (0)

nvmlReturn_t pci_info(const char *pci, nvmlPciInfo_t *info);  /* device.c */

/* ---- readings of the device in hand (gate.c) ---- */

bool has(const Session *session, Key key);
double read_key(const Session *session, Key key);
nvml_u64 read_count(const Session *session, Key key, double scale);
nvmlReturn_t answer_unsigned(const Session *session, Key key, double scale, unsigned *out);
nvmlReturn_t answer_text(const char *text, char *out, unsigned size);
double cumulative(const Session *session, Key key, double t);
bool mig_on(const Device *device);

#endif
