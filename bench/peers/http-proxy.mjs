// The reference: http-proxy with its defaults and a keep-alive agent.
import { Agent, createServer } from 'node:http'
import httpProxy from 'http-proxy'

const { PORT, UPSTREAM } = process.env
const proxy = httpProxy.createProxyServer({ target: UPSTREAM, agent: new Agent({ keepAlive: true }) })
proxy.on('error', (error) => console.error(error.message))
createServer((request, response) => proxy.web(request, response)).listen(Number(PORT), '127.0.0.1')
// V8 writes the profile at exit.
process.once('SIGTERM', () => process.exit(0))
