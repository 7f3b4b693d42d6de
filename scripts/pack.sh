#!/bin/sh
# Builds the package of a release, from CI: the file sluice.tgz. No package runs a script of its own.
set -eu
cd "$(dirname "$0")/.."

npm ci --ignore-scripts
npm pack
mv sluice-*.tgz sluice.tgz
