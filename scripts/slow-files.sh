#!/bin/sh
# Prints the files of `npm run test:slow`, as filters of vitest: the files *.slow.ts, and each test file that has more tests or
# runs there than in `npm test`.
set -eu

cd "$(dirname "$0")/.."
echo .slow.ts
grep -rlF --include='*.test.ts' "helpers/runs.ts'" test
