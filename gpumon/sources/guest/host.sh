# The part of gpumon that runs in the shell of a host without gpumon. It comes over ssh on standard input and is never
# written to a file. FACTS and RUNNER, set above, are Python programs. What standard input asks for, a line each:
#   run SIZE PYTHON   gpumon from an archive of SIZE bytes that follows; nothing else is asked for then
#   gpus FIELDS       nvidia-smi's figures
#   processes         the processes on GPUs with their ancestors, and the ports that are listened on
# The end of standard input is the end of all of it.
umask 077
LC_ALL=C
export LC_ALL
folder=
runner=

leave() {
    trap '' HUP INT TERM
    if [ -n "$folder" ]; then
        rm -rf "$folder"
    fi
}

# The first answer is on a line of its own, whatever the start-up files have printed before.
tell_pythons() {
    printf '\n'
    for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$python" >/dev/null 2>&1; then
            facts=$("$python" -I -c "$FACTS" </dev/null 2>/dev/null)
            if [ -n "$facts" ]; then
                printf 'gpumon-python %s %s\n' "$python" "$facts"
            fi
        fi
    done
    printf 'gpumon-end 0\n'
}

# Compiled modules cannot be loaded from a file system that is mounted noexec.
make_folder() {
    for place in "${TMPDIR:-/tmp}" /var/tmp "${XDG_RUNTIME_DIR:-/tmp}" "${HOME:-/tmp}"; do
        folder=$(mktemp -d "$place/gpumon.XXXXXXXXXX" 2>/dev/null) || continue
        printf '#!/bin/sh\n' >"$folder/try" && chmod 700 "$folder/try"
        if "$folder/try" 2>/dev/null; then
            rm -f "$folder/try"
            return 0
        fi
        rm -rf "$folder"
        folder=
    done
    echo "gpumon: no folder for temporary files that programs can be run from: set TMPDIR there" >&2
    return 1
}

# The runner removes the folder, and so does this shell, whichever of them is left. It waits in the background, as a
# shell handles a signal only when what it waits for in the foreground has ended.
run() {
    trap leave EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    make_folder || exit 1
    exec 3<&0
    "$2" -I -c "$RUNNER" "$folder" "$1" <&3 3<&- &
    runner=$!
    exec 3<&- </dev/null
    trap 'kill "$runner" 2>/dev/null' HUP INT TERM
    wait "$runner"
    code=$?
    while kill -0 "$runner" 2>/dev/null; do
        wait "$runner"
        code=$?
    done
    exit "$code"
}

tell_gpus() {
    nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits </dev/null 2>&1
    printf 'gpumon-end %s\n' "$?"
}

# A line for each process: pid, pid of its parent, user, and its arguments, which may hold any character.
tell_process() {
    while [ "${1:-0}" -gt 1 ] 2>/dev/null; do
        case $told in *" $1 "*) return ;; esac
        told="$told$1 "
        read -r stat <"/proc/$1/stat" || return
        stat=${stat##*") "}
        stat=${stat#* }
        parent=${stat%% *}
        user=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status")
        printf 'process %s %s %s ' "$1" "$parent" "${user:--1}"
        head -c 8192 "/proc/$1/cmdline" | tr '\n\0' ' \037'
        printf '\n'
        set -- "$parent"
    done
}

tell_processes() {
    told=' '
    columns=pid,gpu_uuid,used_memory,process_name
    apps=$(nvidia-smi --query-compute-apps="$columns" --format=csv,noheader,nounits </dev/null 2>&1 | head -n 1024)
    printf '%s\n' "$apps" | sed 's/^/app /'
    for pid in $(printf '%s\n' "$apps" | sed -n 's/^ *\([0-9][0-9]*\),.*/\1/p' | head -n 256); do
        tell_process "$pid" 2>/dev/null
    done
    grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null | sed 's/^/listens /'
    printf 'gpumon-end 0\n'
}

tell_pythons
while read -r request first second; do
    case $request in
    run) run "$first" "$second" ;;
    gpus) tell_gpus "$first" ;;
    processes) tell_processes ;;
    esac
done
