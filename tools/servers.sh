#!/bin/sh
# Installs the servers that the tests start, if this machine lacks them and it takes no question to do so. Never fails.
set -eu

POLICY=/usr/sbin/policy-rc.d
CLUSTERS=/etc/postgresql-common/createcluster.d
PATH=$PATH:/usr/sbin

if [ $# -eq 0 ]; then
    for name in redis-server nutcracker postgresql pgbouncer rabbitmq-server prometheus; do sh "$0" "$name"; done
    exit 0
fi
NAME=$1

tell() {
    echo "$NAME was not installed: $1. Install it (on Debian: apt install $NAME); without it its tests are skipped, or fail under CI."
    exit 0
}

# Debian's programs of PostgreSQL are in a folder for each version, and not on the PATH.
has_it() {
    case $NAME in
    postgresql) ls /usr/lib/postgresql/*/bin/initdb || command -v initdb ;;
    *) command -v "$NAME" ;;
    esac >/dev/null 2>&1
}

if has_it; then exit 0; fi
if ! command -v apt-get >/dev/null; then tell "this is not Debian"; fi
if dpkg-query --show --showformat '${Status}' "$NAME" 2>/dev/null | grep -q ' installed$'; then
    tell "it is installed, but not on the PATH"
fi

if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then tell "that takes root, or sudo without a password"; fi
    sudo -n sh "$0" "$NAME" || tell "sudo failed"
    exit 0
fi

log=$(mktemp)
ours=""
no_cluster=""
clean_up() {
    if [ -n "$ours" ]; then rm -f "$POLICY"; fi
    if [ -n "$no_cluster" ]; then
        rm -f "$no_cluster"
        rmdir "$CLUSTERS" "${CLUSTERS%/*}" 2>/dev/null || true # if nothing was installed
    fi
    rm -f "$log"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# RabbitMQ brings Erlang, which has a service, too.
SERVICES="$NAME*"
no_erlang=""
if [ "$NAME" = rabbitmq-server ]; then
    SERVICES="$NAME*|epmd*"
    if ! command -v epmd >/dev/null; then no_erlang=yes; fi
fi

# The package starts a service unless this file forbids it. The tests start servers of their own, so none is wanted.
if [ -e "$POLICY" ]; then
    answer=0
    "$POLICY" "$NAME" start >/dev/null 2>&1 || answer=$?
    if [ "$answer" -ne 101 ]; then tell "$POLICY would let it run as a service"; fi
else
    ours=yes
    printf '#!/bin/sh\ncase "$1" in %s) exit 101 ;; esac\n' "$SERVICES" >"$POLICY"
    chmod 755 "$POLICY"
fi

# The package also makes a cluster of databases called main.
if [ "$NAME" = postgresql ]; then
    no_cluster=$CLUSTERS/zz-no-main-cluster.conf
    mkdir -p "$CLUSTERS"
    echo "create_main_cluster = false" >"$no_cluster"
fi

install() {
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -o DPkg::Lock::Timeout=60 install -y --no-install-recommends "$NAME" >"$log" 2>&1 </dev/null
}

echo "== installing $NAME for the tests"
# Old lists of packages, or none, are the usual reason for a failure.
if ! install; then
    apt-get -o DPkg::Lock::Timeout=60 update >/dev/null 2>&1 </dev/null || true
    if ! install; then
        tail -n 5 "$log" >&2
        tell "apt-get failed"
    fi
fi
# Nor at the next boot. PostgreSQL has no cluster to start then.
if [ "$NAME" = postgresql ]; then exit 0; fi
update-rc.d "$NAME" disable >/dev/null 2>&1 || true
if [ -n "$no_erlang" ]; then systemctl disable epmd.service epmd.socket >/dev/null 2>&1 || true; fi
