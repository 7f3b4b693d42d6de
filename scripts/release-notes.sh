#!/bin/sh
# Prints the changelog's part of a version, without its heading: scripts/release-notes.sh 0.1.0
set -eu
version=${1:?which version?}
cd "$(dirname "$0")/.."

notes=$(awk -v heading="## [$version]" '
  index($0, "## ") == 1 { printing = index($0, heading) == 1; next }
  printing
' CHANGELOG.md)
if [ -z "$(echo "$notes" | tr -d '[:space:]')" ]; then
  echo "CHANGELOG.md has no notes under \"## [$version]\"; write them." >&2
  exit 1
fi
# Command substitution has removed the blank lines at the end; sed removes those at the start.
printf '%s\n' "$notes" | sed '/./,$!d'
