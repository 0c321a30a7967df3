#!/usr/bin/env bash
# Builds redlock-test-redis:local, a small image around this machine's own redis-server, for places where no image can
# be pulled. Running it again changes nothing unless the binary or a library changed.
#
#   integration/image.sh
#   export REDLOCK_TEST_PROVIDER=containers REDLOCK_TEST_IMAGE=redlock-test-redis:local
#   export TESTCONTAINERS_RYUK_DISABLED=true        # its helper image cannot be pulled either
#   export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1   # only where the tests themselves run inside a container
#
# REDLOCK_REDIS_SERVER names another binary to pack.
set -euo pipefail

image=redlock-test-redis:local

# 1. Find redis-server, or install it.
server=${REDLOCK_REDIS_SERVER:-$(command -v redis-server || true)}
if [ -z "$server" ]; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends redis-server
    server=$(command -v redis-server)
fi

# 2. What goes in: the binary (resolved: it is often a link, and its name decides what it does) and its libraries.
mapfile -t libraries < <(ldd "$server" | grep -o '/[^ ]*' | sort -u)
content=$(sha256sum "$(readlink -f "$server")" "${libraries[@]}" "$0" | sha256sum | cut -d' ' -f1)

# 3. Nothing to do if the image was built from just this.
built=$(docker image inspect --format '{{index .Config.Labels "redlock.test.content"}}' "$image" 2>/dev/null || true)
if [ "$built" = "$content" ]; then
    echo "$image is up to date"
    exit 0
fi

# 4. Build it.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/usr/bin" "$root/data" "$root/tmp"
chmod 1777 "$root/tmp"
cp -L "$server" "$root/usr/bin/redis-server"
for library in "${libraries[@]}"; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
tar -C "$root" --owner=0 --group=0 --numeric-owner -c . | docker import \
    --change 'ENV PATH=/usr/bin' \
    --change 'WORKDIR /data' \
    --change 'EXPOSE 6379' \
    --change 'CMD ["redis-server", "--protected-mode", "no"]' \
    --change "LABEL redlock.test.content=$content" \
    - "$image" >/dev/null
docker run --rm "$image" redis-server --version
echo "$image is built; set REDLOCK_TEST_IMAGE=$image"
