#!/bin/sh
# Publishes the file sluice.tgz with its provenance, from CI. It installs and builds nothing: any code that runs here could publish.
set -eu
cd "$(dirname "$0")/.."

npm publish ./sluice.tgz --ignore-scripts --provenance --access public "$@"
