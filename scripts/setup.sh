#!/bin/sh
# Installs what `npm test` needs on PATH: redis-server, chromium, promtool, nginx, caddy, haproxy, apache2, webfsd, openssl and Perl's HTTP::Daemon.
set -eu

missing() {
  ! command -v "$1" >/dev/null 2>&1
}

packages=
if missing redis-server; then packages="$packages redis-server"; fi
if missing chromium-headless-shell && missing chromium; then packages="$packages chromium-headless-shell"; fi
# Programs without their packages, which would start a server: program, package, path in the package.
tools=
if missing promtool; then tools="$tools promtool:prometheus:usr/bin/promtool"; fi
if missing nginx; then tools="$tools nginx:nginx:usr/sbin/nginx"; fi
if missing caddy; then tools="$tools caddy:caddy:usr/bin/caddy"; fi
if missing haproxy; then
  tools="$tools haproxy:haproxy:usr/sbin/haproxy"
  # Its libraries.
  packages="$packages liblua5.3-0 libopentracing-c-wrapper0 libpcre2-8-0 libssl3 libsystemd0"
fi
if missing webfsd; then
  tools="$tools webfsd:webfs:usr/bin/webfsd"
  packages="$packages libgnutls30"
fi
# Apache without its service.
if missing apache2; then packages="$packages apache2-bin"; fi
if missing openssl; then packages="$packages openssl"; fi
if ! perl -MHTTP::Daemon -e 1 2>/dev/null; then packages="$packages libhttp-daemon-perl"; fi
if [ -z "$packages$tools" ]; then
  echo "redis-server, chromium, promtool, nginx, caddy, haproxy, apache2, webfsd, openssl and Perl's HTTP::Daemon are installed."
  exit 0
fi

if missing apt-get || [ "$(id -u)" != 0 ]; then
  echo "Some of redis-server, chromium, promtool, nginx, caddy, haproxy, apache2, webfsd, openssl and Perl's HTTP::Daemon are missing, and cannot be installed from here." >&2
  echo "Install Redis 6.2 or newer, Chromium, Prometheus, nginx, Caddy, HAProxy with Lua, Apache, webfs, OpenSSL and HTTP::Daemon (Debian: sudo apt-get install redis-server chromium prometheus nginx caddy haproxy apache2-bin webfs openssl libhttp-daemon-perl; macOS: brew install redis chromium prometheus nginx caddy haproxy httpd openssl, cpan HTTP::Daemon, and webfs from its source) and call this again." >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # One word a package.
if [ -n "$packages" ]; then apt-get install -q -y --no-install-recommends $packages; fi
for tool in $tools; do
  folder=$(mktemp -d)
  chmod 755 "$folder"
  package=$(echo "$tool" | cut -d: -f2)
  (cd "$folder" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb .)
  install "$folder/$(echo "$tool" | cut -d: -f3)" "/usr/local/bin/$(echo "$tool" | cut -d: -f1)"
  rm -rf "$folder"
done
