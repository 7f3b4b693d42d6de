#!/bin/sh
# Creates the release of a tag, with its notes from the changelog: scripts/create-release.sh v0.1.0
set -eu
tag=${1:?which tag?}
cd "$(dirname "$0")/.."

notes=$(scripts/release-notes.sh "${tag#v}")
gh release create "$tag" security/http-proxy.vex.json --verify-tag --title "Sluice ${tag#v}" --notes "$notes"
