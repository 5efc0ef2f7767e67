/* Reads the script: whole-machine lines, then one statement per line for each GPU or slice that it names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

bool complain(Complaint *complaint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint->text, sizeof complaint->text, format, arguments);
    va_end(arguments);
    return false;
}

bool parse_unsigned(const char *text, nvml_u64 limit, nvml_u64 *number)
{
    char *end;
    if (text == NULL || *text < '0' || *text > '9') return false;
    *number = strtoull(text, &end, 0);
    return *end == '\0' && *number <= limit;
}

bool symbol_known(const char *name)
{
    size_t length = strlen(name);
    if (strncmp(name, "nvml", 4) != 0) return false;
    if (name[length - 1] == '*') return true;
    Dl_info self;
    if (!dladdr((void *)symbol_known, &self)) return false;
    void *library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool known = library != NULL && dlsym(library, name) != NULL;
    if (library != NULL) dlclose(library);
    return known;
}

static bool rule_covers(const Rule *rule, const char *call, Where where)
{
    if (rule->where.gpu != ALL && rule->where.gpu != where.gpu) return false;
    /* A rule for a GPU covers its slices too. */
    if (rule->where.slice == ALL && where.slice == NO_SLICE) return false;
    if (rule->where.slice >= 0 && rule->where.slice != where.slice) return false;
    size_t length = strlen(rule->name);
    if (rule->name[length - 1] == '*') return strncmp(rule->name, call, length - 1) == 0;
    return strcmp(rule->name, call) == 0;
}

const Outcome *find_rule(const Script *script, const char *call, Where where)
{
    for (unsigned i = script->rule_count; i-- > 0;)
        if (rule_covers(&script->rules[i], call, where)) return &script->rules[i].outcome;
    return NULL;
}

static bool parse_where(char *text, Where *where)
{
    nvml_u64 number;
    char *slash = strchr(text, '/');
    *where = (Where){ALL, NO_SLICE};
    if (slash != NULL) {
        *slash = '\0';
        where->slice = ALL;
        if (strcmp(slash + 1, "*") != 0) {
            if (!parse_unsigned(slash + 1, MAX_SLICES - 1, &number)) return false;
            where->slice = (int)number;
        }
    }
    if (strcmp(text, "*") == 0) return true;
    if (!parse_unsigned(text, MAX_GPUS - 1, &number)) return false;
    where->gpu = (int)number;
    return true;
}

static void copy_text(char *target, size_t size, const char *text)
{
    snprintf(target, size, "%s", text);
}

bool call_line(Script *script, Where where, char *rest, Complaint *complaint)
{
    char *name = strsep(&rest, " ");
    Rule *rule = &script->rules[script->rule_count];
    if (script->rule_count == MAX_RULES) return complain(complaint, "more than %d call lines", MAX_RULES);
    if (name == NULL || rest == NULL) return complain(complaint, "call NAME WHAT expected");
    if (!symbol_known(name)) return complain(complaint, "this library has no call %s", name);
    if (!outcome_parse(rest, &rule->outcome)) return complain(complaint, "unknown outcome %s", rest);
    rule->where = where;
    copy_text(rule->name, sizeof rule->name, name);
    script->rule_count++;
    return true;
}

static bool top_profile(Script *script, char *rest, Complaint *complaint)
{
    char line[80];
    snprintf(line, sizeof line, "profile %s", rest);
    return device_line(script, (Where){ALL, NO_SLICE}, line, complaint);
}

static bool top_number(Script *script, const char *word, const char *rest, Complaint *complaint)
{
    nvml_u64 number;
    if (!parse_unsigned(rest, 1ull << 40, &number)) return complain(complaint, "%s wants a number", word);
    if (strcmp(word, "gpus") == 0) {
        if (number > MAX_GPUS) return complain(complaint, "at most %d gpus", MAX_GPUS);
        script->gpus = (unsigned)number;
    } else if (strcmp(word, "cuda") == 0) {
        script->cuda = (int)number;
    } else {
        script->loaded = (double)number;
    }
    return true;
}

static bool top_line(Script *script, char *line, Complaint *complaint)
{
    char *rest = line, *word = strsep(&rest, " ");
    if (rest == NULL) return complain(complaint, "nothing after %s", word);
    if (strcmp(word, "gpu") == 0) {
        Where where;
        char *place = strsep(&rest, " ");
        if (rest == NULL || !parse_where(place, &where)) return complain(complaint, "gpu N|*|N/SLICE ... expected");
        return device_line(script, where, rest, complaint);
    }
    if (strcmp(word, "gpus") == 0 || strcmp(word, "cuda") == 0 || strcmp(word, "loaded") == 0)
        return top_number(script, word, rest, complaint);
    if (strcmp(word, "profile") == 0) return top_profile(script, rest, complaint);
    if (strcmp(word, "call") == 0) return call_line(script, (Where){ALL, NO_SLICE}, rest, complaint);
    if (strcmp(word, "init") == 0)
        return outcome_parse(rest, &script->init) || complain(complaint, "unknown outcome %s", rest);
    if (strcmp(word, "driver") == 0) {
        copy_text(script->driver, sizeof script->driver, rest);
        return true;
    }
    if (strcmp(word, "nvml") == 0) {
        copy_text(script->nvml, sizeof script->nvml, rest);
        return true;
    }
    return complain(complaint, "unknown word %s", word);
}

/* Cuts the comment, folds white space to single blanks; returns false for an empty line. */
static bool tidy(char *line)
{
    char *out = line;
    line[strcspn(line, "#")] = '\0';
    for (char *in = line; *in != '\0'; in++) {
        bool blank = strchr(" \t\r\n", *in) != NULL;
        if (!blank) *out++ = *in;
        else if (out > line && out[-1] != ' ') *out++ = ' ';
    }
    if (out > line && out[-1] == ' ') out--;
    *out = '\0';
    return *line != '\0';
}

static void fall_back(Device *device, Key key, Key other)
{
    if (device->values[key].shape == UNSET) device->values[key] = device->values[other];
}

static void finish(Script *script)
{
    if (script->nvml[0] == '\0') snprintf(script->nvml, sizeof script->nvml, "13.%.70s", script->driver);
    for (int i = 0; i < MAX_GPUS; i++) {
        Device *device = &script->devices[i];
        fall_back(device, K_graphics, K_busy);
        fall_back(device, K_graphics_clock_mhz, K_sm_clock_mhz);
        fall_back(device, K_max_graphics_clock_mhz, K_max_sm_clock_mhz);
        if (device->slice_count == 0) continue;
        device->values[K_mig_mode] = (Value){.shape = CONSTANT, .a = 1};
        device->values[K_busy] = device->values[K_membusy] = (Value){.shape = UNSUPPORTED};
        for (unsigned s = 0; s < device->slice_count; s++) fall_back(&script->slices[i][s], K_graphics, K_sm);
    }
}

bool script_parse(const char *path, Script *script, Complaint *complaint)
{
    char *line = NULL, start[] = "h100-sxm";
    size_t size = 0;
    unsigned number = 0;
    bool good = true;
    Complaint why = {""};
    FILE *file = fopen(path, "re");
    if (file == NULL) return complain(complaint, "%s: %m", path);
    script->rule_count = script->event_count = 0;
    script->gpus = 1;
    script->cuda = 13000;
    script->loaded = 1735689600;
    script->init = (Outcome){.deed = ANSWER};
    copy_text(script->driver, sizeof script->driver, "580.95.05");
    script->nvml[0] = '\0';
    top_profile(script, start, &why);
    while (good && getline(&line, &size, file) >= 0) {
        number++;
        good = !tidy(line) || top_line(script, line, &why);
    }
    free(line);
    fclose(file);
    finish(script);
    return good || complain(complaint, "%.120s:%u: %.120s", path, number, why.text);
}

/* For tests: whether a script can be read, without starting a driver. */
EXPORT int fakeNvmlCheckScript(const char *path, char *error, unsigned size)
{
    Complaint complaint = {""};
    Script *script = calloc(1, sizeof *script);
    bool good = script != NULL && script_parse(path, script, &complaint);
    free(script);
    copy_text(error, size, complaint.text);
    return good ? 0 : 1;
}
