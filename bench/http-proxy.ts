/** The yardstick: http-proxy as it comes, with a keep-alive agent, and nothing else. Arguments: port, upstream. */
import { Agent, createServer } from 'node:http'
import httpProxy from 'http-proxy'

const [port, target] = process.argv.slice(2) as [string, string]
const proxy = httpProxy.createProxyServer({ target, agent: new Agent({ keepAlive: true }) })
proxy.on('error', (error) => console.error(error.message))
createServer((request, response) => proxy.web(request, response)).listen(Number(port), '127.0.0.1')
