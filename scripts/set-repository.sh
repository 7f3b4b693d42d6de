#!/bin/sh
# Writes the address of the repository into package.json and the alerts' links to the runbook: scripts/set-repository.sh https://HOST/OWNER/sluice
set -eu
url=${1:?which address?}
cd "$(dirname "$0")/.."

npm pkg set "repository.url=git+$url.git" "homepage=$url#readme" "bugs.url=$url/issues"
sed -i "s#runbook_url: [^ ]*/blob/#runbook_url: $url/blob/#" config/prometheus/alerts.yaml test/observe/alerts.test.yaml
