/** The URL at which this machine reaches an admin listener: what listens at every address is at loopback, too. */
export function adminUrl(host: string, port: number): string {
  const here = host === '0.0.0.0' ? '127.0.0.1' : /^[0:]*:[0:]*$/.test(host) ? '::1' : host
  return `http://${here.includes(':') ? `[${here}]` : here}:${port}`
}
