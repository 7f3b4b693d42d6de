#!/bin/sh
# Runs the tests that depend most on time, twenty times in a row while every core is busy: `npm run test:stress [-- RUNS]`.
set -eu

busy=
for _ in $(seq "$(nproc)"); do
  node -e 'for (;;);' &
  busy="$busy $!"
done
trap 'kill $busy' EXIT INT TERM

for run in $(seq "${1:-20}"); do
  echo "--- run $run"
  SLUICE_SLOW=1 npx vitest run test/upstream/readers.test.ts test/gateway/burst-gateway.slow.ts test/gateway/outage-load.slow.ts
done
