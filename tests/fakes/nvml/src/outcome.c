/* What a call can be told to do: answer an error by its name, hang, keep the processor busy, or crash. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const struct { const char *name; nvmlReturn_t code; const char *text; } ERRORS[] = {
    {"ok", 0, "Success"},
    {"none", 0, "Success"},
    {"uninitialized", 1, "Uninitialized"},
    {"invalid_argument", 2, "Invalid Argument"},
    {"not_supported", 3, "Not Supported"},
    {"no_permission", 4, "Insufficient Permissions"},
    {"already_initialized", 5, "Already Initialized"},
    {"not_found", 6, "Not Found"},
    {"insufficient_size", 7, "Insufficient Size"},
    {"insufficient_power", 8, "Insufficient External Power"},
    {"driver_not_loaded", 9, "Driver Not Loaded"},
    {"timeout", 10, "Timeout"},
    {"irq_issue", 11, "Interrupt Request Issue"},
    {"library_not_found", 12, "NVML Shared Library Not Found"},
    {"function_not_found", 13, "Function Not Found"},
    {"corrupted_inforom", 14, "Corrupted infoROM"},
    {"lost", 15, "GPU is lost"},
    {"gpu_lost", 15, "GPU is lost"},
    {"reset_required", 16, "GPU requires restart"},
    {"operating_system", 17, "The operating system has blocked the request."},
    {"version_mismatch", 18, "RM has detected an NVML/RM version mismatch."},
    {"in_use", 19, "In use by another client"},
    {"memory", 20, "Insufficient Memory"},
    {"no_data", 21, "No data"},
    {"vgpu_ecc_not_supported", 22, "The requested vgpu operation is not available on target device because ECC is enabled"},
    {"insufficient_resources", 23, "Insufficient Resources"},
    {"freq_not_supported", 24, "Frequency Not Supported"},
    {"argument_version_mismatch", 25, "Argument version mismatch"},
    {"deprecated", 26, "Deprecated"},
    {"not_ready", 27, "Not Ready"},
    {"gpu_not_found", 28, "GPU Not Found"},
    {"invalid_state", 29, "Invalid State"},
    {"reset_type_not_supported", 30, "Reset Type Not Supported"},
    {"unknown", 999, "Unknown Error"},
};

bool error_code(const char *name, nvmlReturn_t *code)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (strcmp(name, ERRORS[i].name) == 0) {
            *code = ERRORS[i].code;
            return true;
        }
    }
    return false;
}

bool outcome_parse(const char *text, Outcome *outcome)
{
    *outcome = (Outcome){.deed = ANSWER};
    if (error_code(text, &outcome->code)) return true;
    if (strcmp(text, "crash") == 0) {
        outcome->deed = CRASH;
        return true;
    }
    if (strcmp(text, "hang") == 0) {
        *outcome = (Outcome){.deed = HANG, .seconds = -1};
        return true;
    }
    if (strcmp(text, "jam") == 0) {
        outcome->deed = JAM;
        return true;
    }
    if (strncmp(text, "hang:", 5) == 0) outcome->deed = HANG;
    else if (strncmp(text, "busy:", 5) == 0) outcome->deed = BUSY;
    else return false;
    char *end, *start = (char *)text + 5;
    outcome->seconds = outcome->warm_seconds = strtod(start, &end);
    if (end != start && *end == ':' && outcome->deed == BUSY) {
        start = end + 1;
        outcome->warm_seconds = strtod(start, &end);
    }
    return end != start && *end == '\0' && outcome->seconds >= 0 && outcome->warm_seconds >= 0;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) return ERRORS[i].text;
    return "Unknown Error";
}
