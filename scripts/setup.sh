#!/bin/sh
# Makes ready for `npm test`: redis-server, chromium and promtool on PATH.
set -eu

missing() {
  ! command -v "$1" >/dev/null 2>&1
}

packages=
for program in redis-server chromium; do
  if missing "$program"; then packages="$packages $program"; fi
done
if [ -z "$packages" ] && ! missing promtool; then
  echo "redis-server, chromium and promtool are here."
  exit 0
fi

if missing apt-get || [ "$(id -u)" != 0 ]; then
  echo "Some of redis-server, chromium and promtool are missing, and cannot be installed from here." >&2
  echo "Install Redis 6.2 or newer, Chromium and Prometheus (Debian: sudo apt-get install redis-server chromium prometheus; macOS: brew install redis chromium prometheus) and call this again." >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # One word a package.
if [ -n "$packages" ]; then apt-get install -q -y --no-install-recommends $packages; fi
if missing promtool; then
  # The tool alone: the package would start a server on the port of the admin listener.
  folder=$(mktemp -d)
  chmod 755 "$folder"
  (cd "$folder" && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb .)
  install "$folder/usr/bin/promtool" /usr/local/bin/promtool
  rm -rf "$folder"
fi
