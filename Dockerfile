FROM node:24-slim AS build
WORKDIR /sluice
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY bin bin
COPY src src
RUN npm run build && npm prune --omit=dev --omit=optional

FROM node:24-slim
ENV NODE_ENV=production
WORKDIR /sluice
COPY --from=build /sluice/package.json ./
COPY --from=build /sluice/node_modules node_modules
COPY --from=build /sluice/dist dist
COPY config config
USER node
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# SIGTERM drains, so node itself must be process 1.
# A small young generation costs a few per cent of speed and saves an eighth of the memory.
ENTRYPOINT ["node", "--max-semi-space-size=8", "dist/bin/sluice.js"]
CMD ["start", "--config", "/etc/sluice/sluice.yaml"]
