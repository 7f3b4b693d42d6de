#!/bin/sh
# Publishes the package with its provenance, from CI: scripts/publish.sh. Elsewhere, only scripts/publish.sh --dry-run works.
set -eu
cd "$(dirname "$0")/.."

npm ci
# The provenance names the repository, and package.json must name the same.
npm pkg set "repository.type=git" "repository.url=git+${GITHUB_SERVER_URL:?}/${GITHUB_REPOSITORY:?}.git"
npm publish --provenance --access public "$@"
