#!/bin/sh
# Checks that a tag, such as v0.1.0, is the version of package.json and has notes in the changelog, and that package.json has the
# address of the repository, which the provenance names.
set -eu
tag=${1:?which tag?}
cd "$(dirname "$0")/.."

version=$(node --print "require('./package.json').version")
if [ "$tag" != "v$version" ]; then
  echo "The tag $tag is not the version of package.json, which is $version: change one of the two." >&2
  exit 1
fi
repository=$(node --print "require('./package.json').repository.url")
case $repository in *//repository.invalid/*)
  echo "package.json has no address of the repository: run scripts/set-repository.sh, and commit." >&2
  exit 1
esac
if [ -n "${GITHUB_REPOSITORY:-}" ] && [ "$repository" != "git+$GITHUB_SERVER_URL/$GITHUB_REPOSITORY.git" ]; then
  echo "package.json has the repository $repository, which is not this one: run scripts/set-repository.sh, and commit." >&2
  exit 1
fi
scripts/release-notes.sh "$version" >/dev/null
