# Asks top about a program that has written 8 MiB and has the file open still. Prints its number,
# its name and its control groups, as /proc shows them, and then the sample.
mkdir -m 700 runtime
export DROPBEHIND_RUNTIME_DIR=$PWD/runtime
top="${DROPBEHIND:-dropbehind} top --once --json"
(head -c 8M /dev/zero; tail -f /dev/null --pid=$$) 2>/dev/null |
    $RUN dd of=data bs=1M iflag=fullblock >/dev/null 2>&1 &
until $top 2>/dev/null >sample && grep -q '"process":[0-9]*,"program":"dd"' sample; do
    kill -0 $! || exit 1
done
for process in /proc/[0-9]*; do
    if [ "$(readlink $process/fd/1 2>/dev/null)" = "$PWD/data" ]; then
        echo ${process#/proc/} $(cat $process/comm $process/cgroup)
        break
    fi
done
cat sample
