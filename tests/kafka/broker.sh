#!/usr/bin/env bash
# A real Apache Kafka broker (or three) on loopback, without containers: for the
# integration tests and for trying pagesieve out. `broker.sh help` lists the commands.
#
# All state of a cluster is in its DIR:
#   bootstrap              host:port[,host:port...], for clients
#   pid                    one process id a line; line N is broker N; gone when stopped
#   broker-N.properties    its configuration; the process is recognised by this path
#   broker-N.log           its log, appended to by every start
#   data-N/                its records
# shellcheck disable=SC2046 # $(numbers): one word each
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
version=$(sed -n 's:.*<kafka\.version>\(.*\)</kafka\.version>.*:\1:p' "$here/pom.xml")
cache=$root/.cache/kafka-$version
archive=$cache/classes.jsa

# Seconds until a start is given up. A quiet machine needs 2 to 6; a build may hold every core.
start_deadline=90
# Seconds between SIGTERM and SIGKILL. A clean stop takes well under one second; three brokers
# that stop together may wait for each other, and a test should not wait for them.
stop_deadline=10
# Seconds that a restarted broker may take to catch up; it needs one or two.
in_sync_deadline=20
# New ports are tried this often when another process takes one between choosing and binding.
port_attempts=3
# Partitions of the transaction and offsets topics: creating 4 is quick, Kafka's 50 is not.
# coordinators_ready probes as many keys.
coordinator_partitions=4

# Serial collector and first compiler tier: least work before the broker answers.
java_flags=(-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)

usage() {
    cat <<'USAGE'
usage: broker.sh COMMAND
  fetch                        download the jars of the version in pom.xml, if missing
  start DIR [--brokers 1|3] [--property K=V]... [--die-with PID]
                               start a cluster, wait until it serves transactions and groups,
                               print its bootstrap servers as the last line; a DIR that was
                               stopped before starts again with its data and its ports
                               --die-with: SIGKILL the brokers once process PID is gone
  stop DIR [--now]             SIGTERM, then SIGKILL after 10 s; --now: SIGKILL; files stay
  kill|pause|resume DIR N      SIGKILL, SIGSTOP, SIGCONT broker N (from 1)
  restart DIR N                stop broker N if it runs, start it, wait until it answers and is in sync
  topic DIR NAME PARTITIONS [K=V]...   create a topic
  partitions DIR NAME COUNT    raise a topic's number of partitions
  quota DIR CLIENT BYTES       let the client of this id produce so many bytes a second; 0: as many as it likes
  describe DIR                 show all topics
USAGE
}

say() { printf 'broker.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# ---------------------------------------------------------------- jars

# Sorted: the class archive is only valid for the class path it was made with.
class_path() {
    local jars=("$cache"/lib/*.jar)
    local IFS=:
    printf '%s' "${jars[*]}"
}

fetch() (
    [[ -n $version ]] || die "no <kafka.version> in $here/pom.xml"
    local program
    for program in java flock setsid; do
        command -v "$program" >/dev/null || die "$program is not on PATH; see tests/kafka/setup.sh"
    done
    [[ -d $cache/lib && -e $cache/trained ]] && return
    mkdir -p "$cache"
    # The lock is on this subshell's descriptor and ends with it.
    exec 9>"$cache/lock"
    flock 9
    if [[ ! -d $cache/lib ]]; then
        command -v mvn >/dev/null || die "mvn is not on PATH; see tests/kafka/setup.sh"
        say "fetching the jars of Apache Kafka $version with Maven (45 MB) into ${cache#"$root"/}/lib"
        rm -rf "$cache"/lib.partial
        mvn -B -q -Dstyle.color=never -f "$here/pom.xml" dependency:copy-dependencies \
            -DoutputDirectory="$cache/lib.partial" >&2 9>&-
        mv "$cache/lib.partial" "$cache/lib"
    fi
    if [[ ! -e $cache/trained ]]; then
        train 9>&- || say "no class archive: brokers start slower (log: ${cache#"$root"/}/training)"
        : >"$cache/trained"
    fi
)

# Runs one broker once to write down the classes it loads, parsed and checked. Starts that map this
# archive take two thirds of the time; README.md has the figures.
# The JVM ignores an archive of another Java build or class path, with a line in the log.
train() {
    say "recording the classes a broker loads, once, for faster starts"
    local scratch=$cache/training
    rm -rf "$scratch"
    mkdir -p "$scratch"
    PAGESIEVE_BROKER_TRAINING=$scratch/classes.jsa bash "$here/broker.sh" start "$scratch" >/dev/null &&
        bash "$here/broker.sh" stop "$scratch" &&
        mv "$scratch/classes.jsa" "$archive" &&
        rm -rf "$scratch"
}

# Runs a class of the jars in the foreground, warnings only.
tool() {
    java "${java_flags[@]}" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$(class_path)" "$@"
}

# ---------------------------------------------------------------- processes

# State and start time of a process: a number that is used again later names another start time.
born() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
    # After "pid (name) " the fields are those of proc(5) from the third on: state, ..., start time.
    read -r -a stat <<<"${stat##*) }"
    [[ ${stat[0]} != [ZX] ]] && printf '%s' "${stat[19]}"
}

# Is process $1 broker $2 of $dir? Its last argument is its configuration.
is_broker() {
    local args=()
    [[ -n $1 ]] || return 1
    { mapfile -d '' -t args <"/proc/$1/cmdline"; } 2>/dev/null || return 1
    (( ${#args[@]} )) && [[ ${args[-1]} == "$dir/broker-$2.properties" && ${args[0]} == *java ]]
}

# Fills pids from $dir/pid; false when the cluster is stopped.
read_pids() {
    [[ -e $dir/pid ]] && { mapfile -t pids <"$dir/pid"; } 2>/dev/null
}

write_pids() {
    still_wanted || return 0
    printf '%s\n' "${pids[@]}" >"$dir/pid.new"
    mv "$dir/pid.new" "$dir/pid"
}

# Sends signal $1 to the brokers numbered by the other arguments, and to nothing else.
signal() {
    local name=$1 n
    shift
    for n in "$@"; do
        if is_broker "${pids[n - 1]:-}" "$n"; then kill -s "$name" "${pids[n - 1]}" 2>/dev/null || true; fi
    done
}

any_runs() {
    local n
    for n in "$@"; do
        if is_broker "${pids[n - 1]:-}" "$n"; then return 0; fi
    done
    return 1
}

# Ends the brokers of these numbers; returns once they are gone.
end() {
    local deadline=$((SECONDS + stop_deadline))
    signal TERM "$@"
    signal CONT "$@" # a paused broker would never see the SIGTERM
    while any_runs "$@" && ((SECONDS < deadline)); do sleep 0.05; done
    signal KILL "$@"
    while any_runs "$@"; do sleep 0.02; done
}

# Lets go of what a background process would keep from its caller: directory, pipes, locks.
detach() {
    local path fd
    cd /
    for path in "/proc/$BASHPID/fd/"*; do
        fd=${path##*/}
        if ((fd > 2 && fd != 255)); then exec {fd}>&-; fi # 255 is this script
    done
}

numbers() { seq 1 "${#pids[@]}"; }

# Starts broker $1 in the background, in a session of its own: neither a terminal's Ctrl-C nor the
# caller's pipes reach it.
spawn() {
    local n=$1 extra=()
    if [[ -n ${PAGESIEVE_BROKER_TRAINING:-} ]]; then
        extra=("-XX:ArchiveClassesAtExit=$PAGESIEVE_BROKER_TRAINING")
    elif [[ -e $archive ]]; then
        extra=("-XX:SharedArchiveFile=$archive")
    fi
    [[ -e $dir/broker-$n.log ]] && log_start[n]=$(stat -c %s "$dir/broker-$n.log")
    (
        detach
        exec setsid java "${java_flags[@]}" "${extra[@]}" \
            -Dorg.slf4j.simpleLogger.showDateTime=true \
            -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
            -cp "$(class_path)" kafka.Kafka "$dir/broker-$n.properties"
    ) </dev/null >>"$dir/broker-$n.log" 2>&1 &
    pids[n - 1]=$!
    disown # no word about its end on our stderr
    write_pids
    # Until the exec is done the process cannot be recognised, so it could not be stopped either.
    until is_broker "${pids[n - 1]}" "$n"; do
        born "${pids[n - 1]}" >/dev/null || return 0
        sleep 0.01
    done
}

# The log of broker $1 since its last start.
recent_log() { tail -c "+$((${log_start[$1]:-0} + 1))" "$dir/broker-$1.log"; }

# ---------------------------------------------------------------- readiness

# Sends one request, given in hexadecimal without its length, to port $1; prints the reply likewise.
# Spoken by bash because a JVM that asks the same takes longer than the broker takes to start.
ask() (
    exec 2>/dev/null
    request=${2// /}
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    request=$(printf '%08x' $((${#request} / 2)))$request
    # shellcheck disable=SC2001 # "&" in a bash replacement depends on the bash version
    printf '%b' "$(sed 's/../\\x&/g' <<<"$request")" >&3
    size=$(timeout 3 head -c 4 <&3 | hex)
    [[ -n $size ]] || exit 1
    timeout 3 head -c $((16#$size)) <&3 | hex
)

hex() { od -An -v -tx1 | tr -d ' \n'; }

port_of() { sed -n 's!^listeners=PLAINTEXT://127.0.0.1:\([0-9]*\),.*!\1!p' "$dir/broker-$1.properties"; }

# Can broker $1 hand out producer ids (InitProducerId v0, no transactional id)? That needs the
# broker registered and the controller elected. Leaves nothing behind.
gives_producer_ids() {
    local reply
    reply=$(ask "$(port_of "$1")" "0016 0000 00000001 ffff  ffff 0000ea60") || return 1
    [[ ${reply:16:4} == 0000 ]] # after correlation id and throttle time
}

# Are the coordinators of all partitions loaded? Asking for a coordinator creates the internal
# topics. Keys "a" to "d" have consecutive hashes, so they fall on four different partitions.
coordinators_ready() {
    local key reply
    for ((key = 0x61; key < 0x61 + coordinator_partitions; key++)); do
        # OffsetFetch v2 of a group that does not exist: no topics, the error is last.
        reply=$(ask_coordinator "$key" 00 "0009 0002 00000001 ffff  0001 %02x ffffffff") || return 1
        [[ ${reply: -4} == 0000 ]] || return 1
        # DescribeTransactions v0 of an id that does not exist: a loaded coordinator says 105.
        reply=$(ask_coordinator "$key" 01 "0041 0000 00000001 ffff 00  02 02 %02x 00") || return 1
        [[ ${reply:20:4} == 0069 ]] || return 1
    done
}

# Finds the coordinator (FindCoordinator v1) of key $1 (a byte), type $2 (00 group, 01 transaction),
# and asks it $3, a request with the key left out.
ask_coordinator() {
    local key reply request
    printf -v key '%02x' "$1"
    reply=$(ask "$(port_of 1)" "000a 0001 00000001 ffff  0001 $key $2") || return 1
    [[ ${reply:16:4} == 0000 ]] || return 1
    request=${3/\%02x/$key}
    ask $((16#${reply: -8})) "$request" # the reply ends in the coordinator's port
}

# Waits until broker $1 says that it is up. 1: it has ended or the deadline has passed.
wait_up() {
    until recent_log "$1" | grep 'Kafka Server started' >/dev/null; do
        is_broker "${pids[$1 - 1]}" "$1" || return 1
        still_wanted && ((SECONDS < give_up)) || return 1
        sleep 0.05
    done
    wait_for gives_producer_ids "$1"
}

wait_for() {
    until "$@"; do
        still_wanted && ((SECONDS < give_up)) || return 1
        sleep 0.1
    done
}

# False once the watchdog or a `stop` has ended the cluster that is being started.
still_wanted() { [[ -e $dir/pid ]]; }

# ---------------------------------------------------------------- start

# Below the usual range of outgoing connections (from 32768), so that none takes a stopped
# broker's port before its restart.
choose_ports() {
    local port
    ports=()
    while ((${#ports[@]} < $1)); do
        port=$((20000 + RANDOM % 12000))
        [[ " ${ports[*]} " == *" $port "* ]] && continue
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then ports+=("$port"); fi
    done
}

# A Kafka uuid: 16 bytes in base64; letters for its two signs, so that it never starts with "-".
new_uuid() { head -c 16 /dev/urandom | base64 | tr '+/' 'xy' | tr -d '='; }

# The configuration of broker $1 of $2. Later lines win, so --property overrides any of it.
write_properties() {
    local n=$1 brokers=$2 replicas=1 min_isr=1 property
    local listeners=PLAINTEXT://127.0.0.1:${ports[n - 1]},CONTROLLER://127.0.0.1:${ports[brokers + n - 1]}
    if ((brokers == 3)); then replicas=3 min_isr=2; fi
    cat <<PROPERTIES
process.roles=broker,controller
node.id=$n
listeners=$listeners
advertised.listeners=$listeners
controller.quorum.bootstrap.servers=$controllers
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data-$n
auto.create.topics.enable=false
default.replication.factor=$replicas
min.insync.replicas=$min_isr
offsets.topic.num.partitions=$coordinator_partitions
offsets.topic.replication.factor=$replicas
transaction.state.log.num.partitions=$coordinator_partitions
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$min_isr
share.coordinator.state.topic.num.partitions=$coordinator_partitions
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$min_isr
group.initial.rebalance.delay.ms=0
# A quarter of the heap by default, for a cleaner that has next to nothing to clean.
log.cleaner.dedupe.buffer.size=16777216
PROPERTIES
    for property in "${properties[@]}"; do printf '%s\n' "$property"; done
}

# Configures and formats a cluster of $1 brokers on ports that are free now.
format() {
    local brokers=$1 cluster voters='' n port uuid jobs=()
    choose_ports $((2 * brokers))
    controllers='' bootstrap=''
    for ((n = 1; n <= brokers; n++)); do
        port=${ports[brokers + n - 1]} uuid=$(new_uuid)
        controllers+=,127.0.0.1:$port
        voters+=,$n@127.0.0.1:$port:$uuid
        bootstrap+=,127.0.0.1:${ports[n - 1]}
    done
    controllers=${controllers#,} voters=${voters#,} bootstrap=${bootstrap#,}
    cluster=$(new_uuid)
    for ((n = 1; n <= brokers; n++)); do
        rm -rf "$dir/data-$n"
        write_properties "$n" "$brokers" >"$dir/broker-$n.properties"
        tool kafka.tools.StorageTool format --initial-controllers "$voters" -t "$cluster" \
            -c "$dir/broker-$n.properties" >"$dir/broker-$n.log" 2>&1 &
        jobs+=($!)
    done
    for ((n = 1; n <= brokers; n++)); do
        wait "${jobs[n - 1]}" || { failed=$n; return 1; }
    done
    printf '%s\n' "$bootstrap" >"$dir/bootstrap"
}

# Starts all formatted brokers and waits for them. On failure they are ended and $failed is set.
bring_up() {
    local brokers=$1 n
    pids=() log_start=()
    for ((n = 1; n <= brokers; n++)); do spawn "$n"; done
    for ((n = 1; n <= brokers; n++)); do
        wait_up "$n" || { failed=$n; return 1; }
    done
    failed=1
    wait_for coordinators_ready
}

# The EXIT trap of `start` and `restart` until they succeed.
abandon() {
    trap - EXIT
    end $(numbers)
    rm -f "$dir/pid"
    if [[ -e $dir/broker-$failed.log ]]; then
        say "broker $failed did not start; its log ends:"
        tail -n 40 "$dir/broker-$failed.log" >&2
    fi
    exit 1
}

start() {
    local brokers='' owner='' owner_born='' attempt fresh=yes
    while (($#)); do
        case $1 in
            --brokers) [[ ${2:-} == [13] ]] || die "--brokers takes 1 or 3"; brokers=$2 ;;
            --property) [[ ${2:-} == ?*=* ]] || die "--property takes K=V"; properties+=("$2") ;;
            --die-with)
                owner=${2:-}
                if ! [[ $owner =~ ^[0-9]+$ ]] || ! owner_born=$(born "$owner"); then
                    die "--die-with: no process '$owner'"
                fi ;;
            *) die "start: unknown option $1" ;;
        esac
        shift 2
    done
    if read_pids; then
        if any_runs $(numbers); then die "$dir: already running"; fi
    fi
    if [[ -e $dir/bootstrap ]]; then
        [[ -z $brokers && ${#properties[@]} == 0 ]] || die "$dir: already formatted; its brokers and properties stay"
        fresh='' brokers=$(find "$dir" -maxdepth 1 -name 'broker-*.properties' | wc -l)
    fi
    [[ -n ${PAGESIEVE_BROKER_TRAINING:-} ]] || fetch

    pids=() give_up=$((SECONDS + start_deadline))
    : >"$dir/pid"
    trap abandon EXIT
    trap 'exit 1' INT TERM HUP
    if [[ -n $owner ]]; then
        (detach && exec setsid bash "$here/broker.sh" _watch "$dir" "$owner" "$owner_born") \
            </dev/null >/dev/null 2>&1 &
    fi
    for ((attempt = 1; ; attempt++)); do
        [[ -z $fresh ]] || format "${brokers:-1}" || exit 1
        still_wanted || exit 1
        bring_up "${brokers:-1}" && break
        [[ -n $fresh ]] && ((attempt < port_attempts)) && still_wanted &&
            recent_log "$failed" | grep 'Address already in use' >/dev/null || exit 1
        say "a port was taken meanwhile; trying others"
        end $(numbers)
    done
    trap - EXIT INT TERM HUP
    cat "$dir/bootstrap"
}

# Ends the brokers of $dir once process $1, born at $2, is gone; itself ends with the cluster.
# Also when DIR was removed without `stop`: the process ids are remembered.
watch_owner() {
    local last=()
    while [[ $(born "$1") == "$2" ]] && read_pids; do
        last=("${pids[@]}")
        sleep 0.5
    done
    read_pids || pids=("${last[@]}")
    # SIGKILL: whoever wanted the data is gone.
    signal KILL $(numbers)
    rm -f "$dir/pid"
}

# ---------------------------------------------------------------- commands

need_cluster() { read_pids || die "$dir: no cluster runs here"; }

need_broker() {
    need_cluster
    if ! [[ ${1:-} =~ ^[1-9]$ ]] || (($1 > ${#pids[@]})); then die "no broker '${1:-}' in $dir"; fi
}

stop() {
    read_pids || return 0
    [[ ${1:-} != --now ]] || stop_deadline=0
    end $(numbers)
    rm -f "$dir/pid"
}

restart() {
    local n=$1
    end "$n"
    give_up=$((SECONDS + start_deadline)) failed=$n
    spawn "$n"
    if ! wait_up "$n" || { ((${#pids[@]} == 1)) && ! wait_for coordinators_ready; }; then
        end "$n"
        tail -n 40 "$dir/broker-$n.log" >&2
        die "broker $n did not start again"
    fi
    # Before that, losing another broker would stop every partition that needs two replicas, and
    # for more than half a minute. Not for ever: the leader it follows may be paused by the test.
    give_up=$((SECONDS + in_sync_deadline))
    wait_for in_sync "$n" || say "broker $n runs, but is not yet in sync everywhere"
}

# Is broker $1 in sync in every partition that it has a replica of?
in_sync() {
    local shown
    shown=$(topics --describe --command-config <(printf '%s=3000\n' {request,default.api}.timeout.ms) 2>/dev/null) &&
        ! grep "Replicas: [0-9,]*$1" <<<"$shown" | grep -v "Isr: [0-9,]*$1" >/dev/null
}

topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$(<"$dir/bootstrap")" "$@"; }

quota() {
    local change=(--add-config "producer_byte_rate=$2")
    (($2 > 0)) || change=(--delete-config producer_byte_rate)
    tool kafka.admin.ConfigCommand --bootstrap-server "$(<"$dir/bootstrap")" --alter \
        --entity-type clients --entity-name "$1" "${change[@]}"
}

create_topic() {
    local arguments=(--create --topic "$1" --partitions "$2") setting
    shift 2
    for setting in "$@"; do arguments+=(--config "$setting"); done
    topics "${arguments[@]}"
}

main() {
    local command=${1:-help}
    case $command in
        help | -h | --help) usage; return ;;
        fetch) fetch; return ;;
    esac
    (($# >= 2)) || { usage >&2; exit 64; }
    [[ $command != start ]] || mkdir -p "$2"
    [[ -d $2 || $command == _watch ]] || die "$2: no such directory"
    if [[ $command == _watch ]]; then dir=$2; else dir=$(cd "$2" && pwd -P); fi
    shift 2
    pids=() properties=() log_start=() failed=1
    case $command in
        start) start "$@" ;;
        stop) stop "$@" ;;
        kill) need_broker "$@"; signal KILL "$1"; while any_runs "$1"; do sleep 0.02; done ;;
        pause) need_broker "$@"; signal STOP "$1" ;;
        resume) need_broker "$@"; signal CONT "$1" ;;
        restart) need_broker "$@"; restart "$1" ;;
        topic) (($# >= 2)) || die "topic DIR NAME PARTITIONS [K=V]..."; need_cluster; create_topic "$@" ;;
        partitions)
            (($# == 2)) || die "partitions DIR NAME COUNT"
            need_cluster
            topics --alter --topic "$1" --partitions "$2" ;;
        quota)
            (($# == 2)) || die "quota DIR CLIENT BYTES"
            need_cluster
            quota "$@" ;;
        describe) need_cluster; topics --describe ;;
        _watch) watch_owner "$@" ;;
        *) usage >&2; exit 64 ;;
    esac
}

main "$@"
