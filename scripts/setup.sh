#!/bin/sh
# Makes ready for `npm test`: a redis-server on PATH.
set -eu

if command -v redis-server >/dev/null 2>&1; then
  echo "redis-server is here: $(redis-server --version | cut -d' ' -f1-3)"
  exit 0
fi

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -q -y --no-install-recommends redis-server
  exit 0
fi

echo "redis-server is missing, and it cannot be installed from here." >&2
echo "Install Redis 6.2 or newer (Debian: sudo apt-get install redis-server; macOS: brew install redis) and call this again." >&2
exit 1
