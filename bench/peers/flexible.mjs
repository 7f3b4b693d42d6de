// node:http with fast-jwt, rate-limiter-flexible on Redis and http-proxy.
import { readFileSync } from 'node:fs'
import { Agent, createServer } from 'node:http'
import { createVerifier } from 'fast-jwt'
import httpProxy from 'http-proxy'
import { Redis } from 'ioredis'
import { RateLimiterRedis } from 'rate-limiter-flexible'

const { PORT, UPSTREAM, REDIS_PORT, PUBLIC_KEY, ISSUER, AUDIENCE, LIMIT, WINDOW_S, TOKEN_CACHE } = process.env
const verify = createVerifier({
  ...{
    key: readFileSync(PUBLIC_KEY, 'utf8'),
    algorithms: ['RS256'],
    allowedIss: ISSUER,
    allowedAud: AUDIENCE,
  },
  cache: TOKEN_CACHE === '1' ? 10_000 : false,
})
const limiter = new RateLimiterRedis({
  storeClient: new Redis({ port: Number(REDIS_PORT) }),
  ...{ points: Number(LIMIT), duration: Number(WINDOW_S) },
})
const proxy = httpProxy.createProxyServer({ target: UPSTREAM, agent: new Agent({ keepAlive: true }) })
proxy.on('error', (error) => console.error(error.message))

function handle(request, response) {
  let claims
  try {
    claims = verify(request.headers.authorization.slice('Bearer '.length))
  } catch {
    response.writeHead(401).end()
    return
  }
  const report = ({ remainingPoints, msBeforeNext }) => {
    response.setHeader('X-RateLimit-Limit', LIMIT)
    response.setHeader('X-RateLimit-Remaining', remainingPoints)
    response.setHeader('X-RateLimit-Reset', Math.ceil(msBeforeNext / 1000))
  }
  limiter.consume(claims.client_id).then(
    (admitted) => {
      report(admitted)
      proxy.web(request, response)
    },
    (refused) => {
      if (refused instanceof Error) return response.writeHead(503).end()
      report(refused)
      return response.writeHead(429, { 'Retry-After': Math.ceil(refused.msBeforeNext / 1000) }).end()
    },
  )
}

createServer(handle).listen(Number(PORT), '127.0.0.1')
