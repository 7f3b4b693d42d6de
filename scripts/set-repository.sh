#!/bin/sh
# Writes the address of the repository into package.json: scripts/set-repository.sh https://HOST/OWNER/sluice
set -eu
url=${1:?which address?}
cd "$(dirname "$0")/.."

npm pkg set "repository.url=git+$url.git" "homepage=$url#readme" "bugs.url=$url/issues"
