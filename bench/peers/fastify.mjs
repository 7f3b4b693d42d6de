// Fastify with its own plugins: @fastify/jwt, @fastify/rate-limit on Redis, @fastify/http-proxy.
import { readFileSync } from 'node:fs'
import jwt from '@fastify/jwt'
import proxy from '@fastify/http-proxy'
import rateLimit from '@fastify/rate-limit'
import Fastify from 'fastify'
import { Redis } from 'ioredis'

const { PORT, UPSTREAM, REDIS_PORT, PUBLIC_KEY, ISSUER, AUDIENCE, LIMIT, WINDOW_S, TOKEN_CACHE } = process.env
const app = Fastify({ bodyLimit: 10_485_760 })
await app.register(jwt, {
  secret: { public: readFileSync(PUBLIC_KEY, 'utf8') },
  verify: {
    algorithms: ['RS256'],
    allowedIss: ISSUER,
    allowedAud: AUDIENCE,
    cache: TOKEN_CACHE === '1' ? 10_000 : false,
  },
})
app.addHook('onRequest', (request) => request.jwtVerify())
await app.register(rateLimit, {
  hook: 'preHandler',
  keyGenerator: (request) => request.user.client_id,
  max: Number(LIMIT),
  timeWindow: Number(WINDOW_S) * 1000,
  redis: new Redis({ port: Number(REDIS_PORT) }),
})
await app.register(proxy, { upstream: UPSTREAM })
await app.listen({ port: Number(PORT), host: '127.0.0.1' })
