#!/bin/sh
# Builds the package of a release, from CI: the file sluice.tgz. No package runs a script of its own.
set -eu
cd "$(dirname "$0")/.."

npm ci --ignore-scripts
# The provenance names the repository, and package.json must name the same.
npm pkg set "repository.type=git" "repository.url=git+${GITHUB_SERVER_URL:?}/${GITHUB_REPOSITORY:?}.git"
npm pack
mv sluice-*.tgz sluice.tgz
