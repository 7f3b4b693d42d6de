# docker build --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) --tag sluice:0.1.0 .
# docker run --read-only --cap-drop ALL --security-opt no-new-privileges --publish 8080:8080 \
#   --volume "$PWD/sluice:/etc/sluice:ro" sluice:0.1.0        (./sluice contains sluice.yaml: a folder, so that changes are seen)
# docker run --rm --volume "$PWD/sluice:/etc/sluice:ro" sluice:0.1.0 check
# Only store.overridesFile is written, if it is set: give its folder, /var/lib/sluice, a volume.

# For two architectures: docker buildx build --platform linux/amd64,linux/arm64 .
# No package has native code, so the build stage runs once, on the machine's own architecture. The digest is that of
# the index of all architectures: it names the image's content, and the tag only says which it is. Both are the same in both stages;
# dependabot updates them. By hand: docker buildx imagetools inspect node:24.21.0-bookworm-slim --format '{{.Manifest.Digest}}'
FROM --platform=$BUILDPLATFORM node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6 AS build
WORKDIR /sluice
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY bin bin
COPY src src
# The demo sets it to nothing, to keep the sandbox's OpenID Provider, which is a package for development.
ARG OMIT=--omit=dev
# The commit, which `sluice --version` and the metric sluice_build_info name: the image has no .git.
ARG REVISION=unknown
# Outside the image, users install OpenTelemetry themselves; the image keeps it, because nothing can be installed into it. Its packages
# depend only on each other. Source maps and types are half of the packages, and Node.js does not read them.
RUN npm run build && cp -r node_modules/@opentelemetry /tmp && npm prune $OMIT && \
  rm -rf node_modules/@opentelemetry && mv /tmp/@opentelemetry node_modules && \
  find node_modules -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' \) -delete

# Slim, not distroless: distroless has no `env`, so that `exec CONTAINER sluice` would fail.
FROM node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6
# Few allocator arenas save some memory.
ENV NODE_ENV=production MALLOC_ARENA_MAX=2 SLUICE_CONFIG=/etc/sluice/sluice.yaml
WORKDIR /sluice
COPY --from=build /sluice/package.json ./
COPY LICENSE ./
COPY --from=build /sluice/node_modules node_modules
COPY --from=build /sluice/dist dist
COPY config config
# The gateway does not need npm, corepack and yarn, and scanners report vulnerabilities of their packages.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /usr/local/bin/yarn* /opt/yarn* && \
  ln -s /sluice/dist/bin/sluice.js /usr/local/bin/sluice && install --directory --owner=1000 --group=1000 /var/lib/sluice
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Sluice" \
  org.opencontainers.image.description="A rate-limiting gateway for open-banking services" \
  org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.revision="$REVISION"
# The user node, as a number: Kubernetes' runAsNonRoot cannot read names.
USER 1000:1000
EXPOSE 8080 9090
# Asks the admin listener of the configuration. If flags of `start` change its address, give this the same flags.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["sluice", "health"]
# SIGTERM drains, so node itself must be process 1.
# A smaller young generation costs speed, and a larger one memory. The memory reducer shrinks the heap of an idle process, after
# which large answers take up to half as long again for seconds. Maglev, on by default in Node.js 24, costs memory and brings no
# speed here. Node's own code sees more than the 4 shapes of object for which V8 remembers where a property is.
ENTRYPOINT ["node", "--max-semi-space-size=8", "--no-memory-reducer", "--no-maglev", "--max-valid-polymorphic-map-count=8", "dist/bin/sluice.js"]
CMD ["start"]
