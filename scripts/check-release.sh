#!/bin/sh
# Checks that a tag, such as v0.1.0, is the version of package.json and has notes in the changelog.
set -eu
tag=${1:?which tag?}
cd "$(dirname "$0")/.."

version=$(node --print "require('./package.json').version")
if [ "$tag" != "v$version" ]; then
  echo "The tag $tag is not the version of package.json, which is $version: change one of the two." >&2
  exit 1
fi
scripts/release-notes.sh "$version" >/dev/null
