#!/bin/sh
# Signs an image by its digest, without a key (cosign): TAGS="NAME:TAG …" DIGEST=sha256:… scripts/sign-image.sh
set -eu
for tag in ${TAGS:?}; do
  cosign sign --yes "${tag%:*}@${DIGEST:?}"
done
